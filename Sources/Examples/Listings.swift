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

public struct ListingNote: LiveRow, Hashable {
    public static let table = "listing_notes"
    public let id: String
    public let listingID: String
    public let content: String
    public let createdBy: UUID?
    public let createdAt: Date

    public struct Columns: Sendable { let listingID = Column<String>("listing_id") }
    public static let columns = Columns()
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
        let status = Column<Status>("status")
        let assignedStaffID = Column<UUID>("assigned_staff_id")
    }
    public static let columns = Columns()
}

/// Work on a listing; which of it somebody sees, his job decides.
public struct Activity: LiveRow, Hashable {
    public static let table = "activities"
    public let id: String
    public let listingID: String
    public let name: String
    public let status: AgentTask.Status

    public struct Columns: Sendable { let listingID = Column<String>("listing_id") }
    public static let columns = Columns()
}

public struct Acknowledgment: LiveRow, Hashable {
    public static let table = "listing_acknowledgments"
    public let id: String
    public let listingID: String
    public let staffID: UUID

    public struct Columns: Sendable { let staffID = Column<UUID>("staff_id") }
    public static let columns = Columns()
}

/// An office's listings: every screen follows what it shows, and nothing is ever fetched by hand.
@MainActor @Observable
public final class ListingsModel {
    public let listings: LiveQuery<Listing>
    /// Those that are open to anybody, and one's own.
    public let tasks: LiveQuery<AgentTask>
    public let acknowledgments: LiveQuery<Acknowledgment>
    /// The screen of one listing, while it is open.
    public private(set) var detail: ListingDetail?
    public private(set) var losses: [Problem] = []

    private let tidewire: Tidewire
    private let writes: OfflineWrites
    private let me: UUID

    public init(_ tidewire: Tidewire, writes: OfflineWrites, me: UUID) {
        self.tidewire = tidewire
        self.writes = writes
        self.me = me
        listings = LiveQuery(tidewire, Listing.self) { $0.address < $1.address }
        tasks = LiveQuery(
            tidewire, AgentTask.self, where: \.status == .open || \.assignedStaffID == me
        ) { $0.title < $1.title }
        acknowledgments = LiveQuery(tidewire, Acknowledgment.self, where: \.staffID == me) { $0.id < $1.id }
    }

    public var myListings: [Listing] { listings.rows.filter { $0.assignee == me } }
    /// What nobody has told the office yet that he has seen it: the badge is their number.
    public var inbox: [Listing] {
        let seen = Set(acknowledgments.rows.map(\.listingID))
        return listings.rows.filter { !seen.contains($0.id) }
    }
    public var problems: [Problem] {
        Array(listings.problems.values) + tasks.problems.values + acknowledgments.problems.values + losses
    }
    public var hasBegun: Bool { listings.hasBegun && tasks.hasBegun && acknowledgments.hasBegun }

    public func run() async {
        async let listings: Void = listings.run()
        async let tasks: Void = tasks.run()
        async let acknowledgments: Void = acknowledgments.run()
        _ = await (listings, tasks, acknowledgments)
    }

    /// In the detail view's `.task`: it is closed when the view goes.
    public func open(_ listing: String) async {
        let detail = ListingDetail(tidewire, listing)
        self.detail = detail
        await detail.run()
        if self.detail === detail { self.detail = nil }
    }

    // MARK: What is done

    public func addNote(_ content: String) throws {
        guard let detail else { return }
        let id = "note_" + UUID().uuidString.lowercased()
        let note = ListingNote(
            id: id, listingID: detail.listing, content: content, createdBy: me, createdAt: Date())
        try write(
            ListingNote.table, id, .insert,
            ["listing_id": .string(detail.listing), "content": .string(content), "created_by": mine])
        detail.notes.write(note, origin: id)
    }

    public func claim(_ task: AgentTask) throws {
        var claimed = task
        claimed.status = .claimed
        claimed.assignedStaffID = me
        try write(AgentTask.table, task.id, .update, ["status": "CLAIMED", "assigned_staff_id": mine])
        tasks.write(claimed, origin: task.id)
    }

    public func acknowledge(_ listing: Listing) throws {
        let id = "ack_" + UUID().uuidString.lowercased()
        try write(Acknowledgment.table, id, .insert, ["listing_id": .string(listing.id), "staff_id": mine])
        acknowledgments.write(Acknowledgment(id: id, listingID: listing.id, staffID: me), origin: id)
    }

    private var mine: JSONValue { .string(me.uuidString.lowercased()) }

    private func write(
        _ table: String, _ id: String, _ kind: PendingWrite.Kind, _ values: [String: JSONValue]
    ) throws {
        try writes.add(PendingWrite(table: table, row: id, kind: kind, values: values, madeAt: Date()))
    }

    public func sendWrites() async {
        await writes.run { write in
            // Of several for one row the last one says what it is.
            guard !writes.hasUnsent(write.table, write.row) else { return }
            if let row = acknowledgments.rows.first(where: { $0.id == write.row }) {
                acknowledgments.succeeded(write.row, row)
            }
            if let row = tasks.rows.first(where: { $0.id == write.row }) { tasks.succeeded(write.row, row) }
            if let row = detail?.notes.rows.first(where: { $0.id == write.row }) {
                detail?.notes.succeeded(write.row, row)
            }
        } lost: { write, why in
            acknowledgments.failed(write.row)
            tasks.failed(write.row)
            detail?.notes.failed(write.row)
            losses.append(Problem(code: "NotWritten", message: "\(write.name): \(why)", severity: .error))
        }
    }
}

/// Notes and work of one listing.
@MainActor
public final class ListingDetail {
    public let listing: String
    public let notes: LiveQuery<ListingNote>
    public let activities: LiveQuery<Activity>

    init(_ tidewire: Tidewire, _ listing: String) {
        self.listing = listing
        notes = LiveQuery(tidewire, ListingNote.self, where: \.listingID == listing, window: .immediate) {
            ($0.createdAt, $0.id) < ($1.createdAt, $1.id)
        }
        activities = LiveQuery(tidewire, Activity.self, where: \.listingID == listing) { $0.name < $1.name }
    }

    func run() async {
        async let notes: Void = notes.run()
        async let activities: Void = activities.run()
        _ = await (notes, activities)
    }
}
