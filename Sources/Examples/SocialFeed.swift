import Foundation
import Observation
import TidewireClient

public struct Post: LiveRow, Hashable {
    public static let table = "posts"
    public let id: UUID
    public let author: UUID
    public let caption: String?
    public let createdAt: Date
}

/// A row without an id of its own: its key is two columns.
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

public struct Follow: LiveRow, Hashable {
    public struct Key: Hashable, Decodable, Sendable {
        public let followerID: UUID
        public let followeeID: UUID
    }
    public static let table = "follows"
    public static let key = ["follower_id", "followee_id"]
    public let followerID: UUID
    public let followeeID: UUID
    public var id: Key { Key(followerID: followerID, followeeID: followeeID) }

    public struct Columns: Sendable { let followerID = Column<UUID>("follower_id") }
    public static let columns = Columns()
}

/// Posts of those whom somebody follows, with likes and comments that count; new posts wait behind a banner.
@MainActor @Observable
public final class FeedModel {
    public private(set) var problems: [Problem] = []
    public private(set) var following: Set<UUID> = []
    public private(set) var hasBegun = false

    private var posts: [UUID: Post] = [:]
    private var shown: Set<UUID> = []
    private var likes = OptimisticKeys<UUID, Like.Key> { $0.postID }
    private var allComments = OptimisticRows<Comment> { FeedModel.name($0.id) }
    @ObservationIgnored private var visible: Task<Void, Never>?
    private let tidewire: Tidewire
    private let writes: OfflineWrites
    private let me: UUID

    public init(_ tidewire: Tidewire, writes: OfflineWrites, me: UUID) {
        self.tidewire = tidewire
        self.writes = writes
        self.me = me
    }

    private nonisolated static func name(_ id: UUID) -> String { id.uuidString.lowercased() }

    // MARK: What is shown

    public var feed: [Post] {
        posts.values.filter { shown.contains($0.id) }.sorted {
            ($0.createdAt, $0.id.uuidString) > ($1.createdAt, $1.id.uuidString)
        }
    }
    /// "3 new posts": of others, for one's own is shown at once.
    public var banner: Int { posts.count - shown.count }
    public func likeCount(_ post: UUID) -> Int { likes.count(post) }
    public func isLiked(_ post: UUID) -> Bool { likes.contains(Like.Key(postID: post, userID: me)) }
    public func comments(_ post: UUID) -> [Comment] { allComments.all.filter { $0.postID == post } }

    public func showNewPosts() { shown = Set(posts.keys) }

    // MARK: What is followed

    public func run() async {
        async let likes: Void = followLikes()
        async let people: Void = followPeople()
        _ = await (likes, people)
        visible?.cancel()
    }

    /// Whom somebody follows decides what he may see: it is asked for anew when that changes.
    private func followPeople() async {
        for await batch in tidewire.live(Follow.self, where: \.followerID == me, window: .immediate) {
            problems += batch.problems
            if let rows = batch.rows { following = Set(rows.map(\.followeeID)) }
            for change in batch.changes {
                if change.row == nil { following.remove(change.id.followeeID) }
                if let row = change.row { following.insert(row.followeeID) }
            }
            guard batch.rows != nil || !batch.changes.isEmpty else { continue }
            visible?.cancel()
            visible = Task {
                async let posts: Void = followPosts()
                async let comments: Void = followComments()
                _ = await (posts, comments)
            }
        }
    }

    private func followPosts() async {
        var isFresh = true
        for await batch in tidewire.live(Post.self, window: .immediate) {
            if Task.isCancelled { return }
            problems += batch.problems
            if let rows = batch.rows { posts = Dictionary(rows.map { ($0.id, $0) }) { _, last in last } }
            for change in batch.changes { posts[change.id] = change.row }
            if batch.rows != nil, isFresh {
                // Whoever was just followed is no news; what came while the line was down is.
                (isFresh, hasBegun) = (false, true)
                showNewPosts()
            }
            shown.formUnion(posts.values.filter { $0.author == me }.map(\.id))
            shown.formIntersection(posts.keys)
        }
    }

    private func followComments() async {
        for await batch in tidewire.live(Comment.self, window: .immediate) {
            if Task.isCancelled { return }
            problems += batch.problems
            if let rows = batch.rows { allComments.replaceAll(rows) }
            for change in batch.changes { allComments.hear(change) }
        }
    }

    private func followLikes() async {
        for await batch in tidewire.live(Like.self, window: .immediate) {
            problems += batch.problems
            if let rows = batch.rows { likes.replaceAll(rows.map(\.id)) }
            for change in batch.changes { likes.hear(change.id, isThere: change.row != nil) }
        }
    }

    // MARK: What is done

    public func toggleLike(_ post: UUID) throws {
        let key = Like.Key(postID: post, userID: me)
        let isThere = !likes.contains(key)
        let row = Self.name(post) + "/" + Self.name(me)
        try writes.add(
            PendingWrite(
                table: Like.table, row: row, kind: isThere ? .insert : .delete,
                values: ["post_id": .string(Self.name(post)), "user_id": .string(Self.name(me))], madeAt: Date()))
        likes.write(key, isThere: isThere)
        // Taken back before it was sent.
        if !writes.hasUnsent(Like.table, row) { likes.failed(key) }
    }

    public func comment(_ post: UUID, _ body: String) throws {
        let comment = Comment(id: UUID(), postID: post, userID: me, body: body)
        let values: [String: JSONValue] = [
            "post_id": .string(Self.name(post)), "user_id": .string(Self.name(me)), "body": .string(body),
        ]
        try writes.add(
            PendingWrite(
                table: Comment.table, row: Self.name(comment.id), kind: .insert, values: values, madeAt: Date()))
        allComments.write(comment, origin: Self.name(comment.id))
    }

    public func sendWrites() async {
        await writes.run { write in
            settle(write) {
                likes.succeeded($0)
            } comment: {
                allComments.succeeded(write.row, $0)
            }
        } lost: { write, why in
            settle(write) {
                likes.failed($0)
            } comment: { _ in
                allComments.failed(write.row)
            }
            problems.append(Problem(code: "NotWritten", message: "\(write.name): \(why)", severity: .error))
        }
    }

    private func settle(_ write: PendingWrite, like: (Like.Key) -> Void, comment: (Comment) -> Void) {
        if let own = UUID(uuidString: write.row).flatMap({ allComments[$0] }) { comment(own) }
        guard write.table == Like.table, !writes.hasUnsent(write.table, write.row) else { return }
        if let key = try? RowImage(write.values).decode(Like.Key.self) { like(key) }
    }
}
