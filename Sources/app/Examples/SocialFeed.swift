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

    public struct Columns: Sendable { let followerID = LiveColumn<UUID>("follower_id") }
    public static let columns = Columns()
}

/// Model of the posts of followed users, with counts of likes and comments. New posts wait behind a banner until the
/// user asks for them.
@MainActor @Observable
public final class FeedModel {
    /// Likes and comments of the posts.
    public let reactions: FeedReactions
    public private(set) var following: Set<UUID> = []
    public private(set) var hasBegun = false

    private var own: [TidewireProblem] = []
    private var posts: [UUID: Post] = [:]
    private var shown: Set<UUID> = []
    @ObservationIgnored private var visible: Task<Void, Never>?
    private let tidewire: Tidewire
    private let me: UUID

    public init(_ tidewire: Tidewire, writes: OfflineWrites, me: UUID) {
        self.tidewire = tidewire
        self.me = me
        reactions = FeedReactions(tidewire, writes: writes, me: me)
    }

    // MARK: Shown data

    public var feed: [Post] {
        posts.values.filter { shown.contains($0.id) }.sorted {
            ($0.createdAt, $0.id.uuidString) > ($1.createdAt, $1.id.uuidString)
        }
    }
    /// Number of new posts, for the banner "3 new posts". The user's own posts show immediately and are not counted.
    public var banner: Int { posts.count - shown.count }
    public var problems: [TidewireProblem] { own + reactions.problems }

    public func showNewPosts() { shown = Set(posts.keys) }

    // MARK: Subscriptions

    public func run() async {
        async let likes: Void = reactions.followLikes()
        async let people: Void = followPeople()
        _ = await (likes, people)
        visible?.cancel()
    }

    /// Receives the list of people whom the user follows. The policies on posts depend on that list, so the model asks
    /// for the posts again when it changes.
    private func followPeople() async {
        for await batch in tidewire.live(Follow.self, where: \.followerID == me, window: .immediate) {
            own += batch.problems
            if let rows = batch.rows { following = Set(rows.map(\.followeeID)) }
            for change in batch.changes {
                if change.row == nil { following.remove(change.id.followeeID) }
                if let row = change.row { following.insert(row.followeeID) }
            }
            guard batch.rows != nil || !batch.changes.isEmpty else { continue }
            visible?.cancel()
            visible = Task {
                async let posts: Void = followPosts()
                async let comments: Void = reactions.followComments()
                _ = await (posts, comments)
            }
        }
    }

    private func followPosts() async {
        var isFresh = true
        for await batch in tidewire.live(Post.self, window: .immediate) {
            if Task.isCancelled { return }
            own += batch.problems
            if let rows = batch.rows { posts = Dictionary(rows.map { ($0.id, $0) }) { _, last in last } }
            for change in batch.changes { posts[change.id] = change.row }
            if batch.rows != nil, isFresh {
                // Posts of a newly followed user are not new. Posts that arrived during an interruption are.
                (isFresh, hasBegun) = (false, true)
                showNewPosts()
            }
            shown.formUnion(posts.values.filter { $0.author == me }.map(\.id))
            shown.formIntersection(posts.keys)
        }
    }

    public func sendWrites() async { await reactions.sendWrites() }
}
