import Foundation
import Observation
import TidewireClient

/// A like. Its key consists of two columns; it has no id column.
public struct Like: LiveRow, Hashable {
    public struct Key: Hashable, Decodable, Sendable {
        public let postID: UUID
        public let userID: UUID
    }
    public static let table = "likes"
    public static let key = ["post_id", "user_id"]
    public let postID: UUID
    public let userID: UUID
    public var id: Key { Key(postID: postID, userID: userID) }
}

public struct Comment: LiveRow, Hashable {
    public static let table = "comments"
    public let id: UUID
    public let postID: UUID
    public let userID: UUID
    public let body: String
}

/// Model of the likes and comments of posts. No like counts twice, and the user's own comments show immediately.
@MainActor @Observable
public final class FeedReactions {
    public private(set) var problems: [TidewireProblem] = []

    private var likes = OptimisticKeys<UUID, Like.Key> { $0.postID }
    private var allComments = OptimisticRows<Comment> { $0.id.filterText }
    private let tidewire: Tidewire
    private let writes: OfflineWrites
    private let me: UUID

    init(_ tidewire: Tidewire, writes: OfflineWrites, me: UUID) {
        self.tidewire = tidewire
        self.writes = writes
        self.me = me
    }

    public func likeCount(_ post: UUID) -> Int { likes.count(in: post) }
    public func isLiked(_ post: UUID) -> Bool { likes.contains(Like.Key(postID: post, userID: me)) }
    public func comments(_ post: UUID) -> [Comment] { allComments.all.filter { $0.postID == post } }

    func followLikes() async {
        for await batch in tidewire.live(Like.self, window: .immediate) {
            problems += batch.problems
            if let rows = batch.rows { likes.replaceAll(with: rows.map(\.id)) }
            for change in batch.changes { likes.apply(change.id, isThere: change.row != nil) }
        }
    }

    func followComments() async {
        for await batch in tidewire.live(Comment.self, window: .immediate) {
            if Task.isCancelled { return }
            problems += batch.problems
            if let rows = batch.rows { allComments.replaceAll(with: rows) }
            for change in batch.changes { allComments.apply(change) }
        }
    }

    // MARK: Actions

    public func toggleLike(_ post: UUID) throws {
        let key = Like.Key(postID: post, userID: me)
        let isThere = !likes.contains(key)
        let row = post.filterText + "/" + me.filterText
        try writes.add(
            isThere ? .insert : .delete, table: Like.table, row: row,
            values: ["post_id": .string(post.filterText), "user_id": .string(me.filterText)])
        likes.write(key, isThere: isThere)
        // The user took the like back before it was sent.
        if !writes.hasUnsentWrite(table: Like.table, row: row) { likes.revertWrite(key) }
    }

    public func comment(_ post: UUID, _ body: String) throws {
        let comment = Comment(id: UUID(), postID: post, userID: me, body: body)
        let id = comment.id.filterText
        try writes.add(
            .insert, table: Comment.table, row: id,
            values: ["post_id": .string(post.filterText), "user_id": .string(me.filterText), "body": .string(body)])
        allComments.write(comment, origin: id)
    }

    func sendWrites() async {
        await writes.run { write in
            allComments.confirmWrite(origin: write.row)
            if let like = like(write) { likes.confirmWrite(like) }
        } lost: { write, why in
            allComments.revertWrite(origin: write.row)
            if let like = like(write) { likes.revertWrite(like) }
            problems.append(TidewireProblem(code: "NotWritten", message: "\(write.name): \(why)", severity: .error))
        }
    }

    /// Returns the like that a write inserts or deletes. Nil if a later write of the same like waits, because the last
    /// write decides.
    private func like(_ write: PendingWrite) -> Like.Key? {
        guard write.table == Like.table, !writes.hasUnsentWrite(table: write.table, row: write.row) else { return nil }
        return try? RowImage(write.values).decode(Like.Key.self)
    }
}
