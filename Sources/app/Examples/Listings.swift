import Foundation
import Observation
import TidewireClient

public struct Listing: LiveRow, Hashable {
    public static let table = "listings"
    public let id: String
    public let address: String
    public let status: String
    public let assignee: UUID?
}

public struct AgentTask: LiveRow, Hashable {
    public enum Status: String, Decodable, FilterValue {
        case open = "OPEN"
        case claimed = "CLAIMED"
        case inProgress = "IN_PROGRESS"
        case done = "DONE"
        case cancelled = "CANCELLED"
    }
    public static let table = "agent_tasks"
    public let id: String
    public let title: String
    public var status: Status
    public var assignedStaffID: UUID?

    public struct Columns: Sendable {
        let status = LiveColumn<Status>("status")
        let assignedStaffID = LiveColumn<UUID>("assigned_staff_id")
    }
    public static let columns = Columns()
}

public struct Acknowledgment: LiveRow, Hashable {
    public static let table = "listing_acknowledgments"
    public let id: String
    public let listingID: String
    public let staffID: UUID

    public struct Columns: Sendable { let staffID = LiveColumn<UUID>("staff_id") }
    public static let columns = Columns()
}

/// Model of an office's listings. Every screen follows its rows, and the app never fetches them.
@MainActor @Observable
public final class ListingsModel {
    public let listings: LiveQuery<Listing>
    /// Tasks that anyone may claim, and the user's own tasks.
    public let tasks: LiveQuery<AgentTask>
    public let acknowledgments: LiveQuery<Acknowledgment>
    /// Model of the listing whose screen is open; nil if none is.
    public private(set) var detail: ListingDetail?
    public private(set) var losses: [TidewireProblem] = []

    private let tidewire: Tidewire
    private let writes: OfflineWrites
    private let me: UUID

    public init(_ tidewire: Tidewire, writes: OfflineWrites, me: UUID) {
        self.tidewire = tidewire
        self.writes = writes
        self.me = me
        listings = LiveQuery(of: Listing.self, from: tidewire) { $0.address < $1.address }
        tasks = LiveQuery(
            of: AgentTask.self, from: tidewire, where: \.status == .open || \.assignedStaffID == me
        ) { $0.title < $1.title }
        acknowledgments = LiveQuery(of: Acknowledgment.self, from: tidewire, where: \.staffID == me) { $0.id < $1.id }
    }

    public var myListings: [Listing] { listings.rows.filter { $0.assignee == me } }
    /// Listings that the user has not acknowledged. A badge shows their number.
    public var inbox: [Listing] {
        let seen = Set(acknowledgments.rows.map(\.listingID))
        return listings.rows.filter { !seen.contains($0.id) }
    }
    public var problems: [TidewireProblem] {
        Array(listings.problems.values) + tasks.problems.values + acknowledgments.problems.values + losses
    }
    public var hasBegun: Bool { listings.hasBegun && tasks.hasBegun && acknowledgments.hasBegun }

    public func run() async {
        async let listings: Void = listings.run()
        async let tasks: Void = tasks.run()
        async let acknowledgments: Void = acknowledgments.run()
        _ = await (listings, tasks, acknowledgments)
    }

    /// Shows the detail of a listing until the detail view's `.task` is cancelled.
    public func open(_ listing: String) async {
        let detail = ListingDetail(tidewire, listing, writes: writes, me: me)
        self.detail = detail
        await detail.run()
        if self.detail === detail { self.detail = nil }
    }

    // MARK: Actions

    public func claim(_ task: AgentTask) throws {
        var claimed = task
        claimed.status = .claimed
        claimed.assignedStaffID = me
        try writes.add(
            .update, table: AgentTask.table, row: task.id, values: ["status": "CLAIMED", "assigned_staff_id": mine])
        tasks.write(claimed, origin: task.id)
    }

    public func acknowledge(_ listing: Listing) throws {
        let id = "ack_" + UUID().uuidString.lowercased()
        try writes.add(
            .insert, table: Acknowledgment.table, row: id,
            values: ["listing_id": .string(listing.id), "staff_id": mine])
        acknowledgments.write(Acknowledgment(id: id, listingID: listing.id, staffID: me), origin: id)
    }

    private var mine: JSONValue { .string(me.filterText) }

    public func sendWrites() async {
        await writes.run { write in
            // If several writes of one row wait, the last one decides the row's state.
            guard !writes.hasUnsentWrite(table: write.table, row: write.row) else { return }
            acknowledgments.confirmWrite(origin: write.row)
            tasks.confirmWrite(origin: write.row)
            detail?.notes.confirmWrite(origin: write.row)
        } lost: { write, why in
            acknowledgments.revertWrite(origin: write.row)
            tasks.revertWrite(origin: write.row)
            detail?.notes.revertWrite(origin: write.row)
            losses.append(TidewireProblem(code: "NotWritten", message: "\(write.name): \(why)", severity: .error))
        }
    }
}
