import Foundation
import Observation
import TidewireClient

/// A friend request and its status.
public struct Friendship: LiveRow, Hashable {
    public enum Status: String, Decodable, FilterValue {
        case pending, accepted, declined, blocked
    }

    public static let table = "friendships"
    public let id: UUID
    public let requesterID: UUID
    public let addresseeID: UUID
    public let status: Status

    public struct Columns: Sendable {
        let requesterID = LiveColumn<UUID>("requester_id")
        let addresseeID = LiveColumn<UUID>("addressee_id")
    }
    public static let columns = Columns()
}

/// Model of friend requests: a badge, a list, and one short notice (toast) for each event.
@MainActor @Observable
public final class FriendshipsModel {
    public enum Toast: Sendable, Hashable {
        case request(from: UUID)
        case accepted(by: UUID)
    }

    public private(set) var friendships: [UUID: Friendship] = [:]
    public private(set) var toasts: [Toast] = []
    public private(set) var problems: [TidewireProblem] = []

    private let tidewire: Tidewire
    private let me: UUID
    private let fetch: @Sendable () async throws -> [Friendship]
    /// True once the existing requests have been loaded. Later changes cause notices.
    @ObservationIgnored public private(set) var hasBegun = false

    public init(_ tidewire: Tidewire, me: UUID, fetch: @escaping @Sendable () async throws -> [Friendship]) {
        self.tidewire = tidewire
        self.me = me
        self.fetch = fetch
    }

    public var badge: Int { friendships.values.count { $0.addresseeID == me && $0.status == .pending } }
    public var friends: Set<UUID> {
        Set(
            friendships.values.filter { $0.status == .accepted }.map {
                $0.requesterID == me ? $0.addresseeID : $0.requesterID
            })
    }

    /// Receives changes until the view's `.task` is cancelled. The view may call `run` again.
    public func run() async {
        let mine: LiveFilter<Friendship> = \.requesterID == me || \.addresseeID == me
        for await batch in tidewire.live(Friendship.self, where: mine, window: .immediate, fetch: fetch) {
            take(batch)
            if Task.isCancelled { return }
        }
    }

    private func take(_ batch: LiveBatch<Friendship>) {
        problems += batch.problems
        if let rows = batch.rows {
            // After a gap, rows that arrived in the gap cause notices. The rows loaded at the start of the app do not.
            if hasBegun { for row in rows { tell(row, was: friendships[row.id]) } }
            friendships = Dictionary(rows.map { ($0.id, $0) }) { _, last in last }
            hasBegun = true
        }
        for change in batch.changes {
            if let row = change.row { tell(row, was: friendships[row.id]) }
            friendships[change.id] = change.row
        }
    }

    /// Adds a notice for a change of a friendship, if the user should see one.
    private func tell(_ row: Friendship, was: Friendship?) {
        guard row.status != was?.status else { return }
        switch row.status {
        case .pending where row.addresseeID == me: toasts.append(.request(from: row.requesterID))
        case .accepted where row.requesterID == me: toasts.append(.accepted(by: row.addresseeID))
        default: break
        }
    }
}
