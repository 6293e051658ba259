import Foundation
import TidewireClient

public struct ListingNote: LiveRow, Hashable {
    public static let table = "listing_notes"
    public let id: String
    public let listingID: String
    public let content: String
    public let createdBy: UUID?
    public let createdAt: Date

    public struct Columns: Sendable { let listingID = LiveColumn<String>("listing_id") }
    public static let columns = Columns()
}

/// An activity for a listing. A policy on the user's job decides which activities the user sees.
public struct Activity: LiveRow, Hashable {
    public static let table = "activities"
    public let id: String
    public let listingID: String
    public let name: String
    public let status: AgentTask.Status

    public struct Columns: Sendable { let listingID = LiveColumn<String>("listing_id") }
    public static let columns = Columns()
}

/// Model of one listing's notes and activities.
@MainActor
public final class ListingDetail {
    public let listing: String
    public let notes: LiveQuery<ListingNote>
    public let activities: LiveQuery<Activity>

    private let writes: OfflineWrites
    private let me: UUID

    init(_ tidewire: Tidewire, _ listing: String, writes: OfflineWrites, me: UUID) {
        self.listing = listing
        self.writes = writes
        self.me = me
        notes = LiveQuery(of: ListingNote.self, from: tidewire, where: \.listingID == listing, window: .immediate) {
            ($0.createdAt, $0.id) < ($1.createdAt, $1.id)
        }
        activities = LiveQuery(of: Activity.self, from: tidewire, where: \.listingID == listing) { $0.name < $1.name }
    }

    func run() async {
        async let notes: Void = notes.run()
        async let activities: Void = activities.run()
        _ = await (notes, activities)
    }

    /// Shows a note immediately, and sends it when the network allows it.
    public func addNote(_ content: String) throws {
        let id = "note_" + UUID().filterText
        try writes.add(
            .insert, table: ListingNote.table, row: id,
            values: ["listing_id": .string(listing), "content": .string(content), "created_by": .string(me.filterText)])
        let note = ListingNote(id: id, listingID: listing, content: content, createdBy: me, createdAt: Date())
        notes.write(note, origin: id)
    }
}
