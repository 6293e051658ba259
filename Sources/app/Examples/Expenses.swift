import Foundation
import Observation
import TidewireClient

/// Model that synchronizes a user's expenses across devices, with six tables on one subscription. The last write wins.
/// Writes made without a network are sent later.
@MainActor @Observable
public final class ExpensesModel {
    public static let tables = [
        "financial_transactions", "settlements", "chat_messages", "reminders", "subscriptions",
        "subscription_reminders",
    ]

    /// A stored row, with the facts by which conflicts are resolved.
    public struct Record: Sendable {
        public var image: RowImage
        public var version: RowVersion

        init(_ image: RowImage, at position: LogPosition?) {
            self.image = image
            version = RowVersion(
                updatedAt: try? image.decode(Date.self, column: "updated_at"),
                deletedAt: try? image.decode(Date.self, column: "deleted_at"), position: position)
        }
    }

    /// State that the app saves as a unit: the rows, their position, and the server's versions of rows with unsent
    /// writes.
    public struct Saved: Sendable {
        public var records: [String: [String: Record]] = [:]
        public var position: LogPosition?
        var former: [String: Record?] = [:]

        public init() {}
    }

    public private(set) var saved: Saved
    /// Number of times that the app saved its state. It saves once for many changes that arrive together.
    public private(set) var saves = 0
    public private(set) var problems: [TidewireProblem] = []
    /// True once the existing rows have been loaded.
    public private(set) var hasBegun = false

    private let tidewire: Tidewire
    private let writes: OfflineWrites
    private let me: UUID
    private let policy = LastWriteWins()

    public init(_ tidewire: Tidewire, writes: OfflineWrites, me: UUID, saved: Saved = Saved()) {
        self.tidewire = tidewire
        self.writes = writes
        self.me = me
        self.saved = saved
    }

    /// True if all missed changes have arrived and the server has accepted all of the user's writes.
    public var isSynced: Bool { tidewire.state == .live && writes.pendingWrites.isEmpty }

    public func record(_ table: String, _ id: UUID) -> Record? { saved.records[table]?[id.uuidString.lowercased()] }

    public func run() async {
        let filter = "owner_id=eq.\(me.uuidString.lowercased())"
        let bindings = Self.tables.map { TableBinding(table: $0, filter: filter) }
        let windows = ["chat_messages": BatchWindow.immediate]
        for await batch in tidewire.changes(of: bindings, after: saved.position, windows: windows, snapshot: true) {
            take(batch)
            if Task.isCancelled { return }
        }
    }

    private func take(_ batch: TableBatch) {
        problems += batch.problems
        if let rows = batch.rows { replaceAll(rows, at: batch.position) }
        for change in batch.changes { take(change) }
        if let position = batch.position { saved.position = position }
        if !batch.changes.isEmpty { saves += 1 }
    }

    /// Replaces all rows. Rows with unsent writes remain, unless the server has a newer version.
    private func replaceAll(_ rows: [RowChange], at position: LogPosition?) {
        let before = saved.records
        saved.records = [:]
        for (table, records) in before {
            saved.records[table] = records.filter { writes.hasUnsentWrite(table: table, row: $0.key) }
        }
        for name in saved.former.keys { saved.former[name] = .some(nil) }
        for row in rows { take(row) }
        hasBegun = true
    }

    private func take(_ change: RowChange) {
        let isThere = change.kind == .insert || change.kind == .update
        let image = RowImage(isThere ? change.record : change.oldRecord)
        guard let id = image["id"]?.text else { return }
        let remote = Record(image, at: change.position)
        let name = change.table + "/" + id
        if saved.former[name] != nil { saved.former[name] = .some(isThere ? remote : nil) }
        let local = saved.records[change.table]?[id]?.version
        let hasUnsent = writes.hasUnsentWrite(table: change.table, row: id)
        let resolution =
            isThere
            ? policy.resolve(local: local, remote: remote.version, hasUnsentWrite: hasUnsent)
            : policy.resolveDeletion(local: local, at: change.position, hasUnsentWrite: hasUnsent)
        switch resolution {
        case .keepLocal: break
        case .delete: saved.records[change.table]?[id] = nil
        case .insert, .takeRemote, .deleteSoftly, .undelete: saved.records[change.table, default: [:]][id] = remote
        }
    }

    /// Shows a write immediately, and sends it when the network allows it.
    public func write(_ table: String, _ id: UUID, _ values: [String: JSONValue], at date: Date = Date()) throws {
        let key = id.uuidString.lowercased()
        let former = saved.records[table]?[key]
        let written = values.merging(["id": .string(key), "updated_at": .string(date.filterText)]) { _, own in own }
        try writes.add(
            PendingWrite(
                table: table, row: key, kind: former == nil ? .insert : .update, values: written, date: date))
        if saved.former[table + "/" + key] == nil { saved.former[table + "/" + key] = .some(former) }
        let image = RowImage((former?.image.values ?? [:]).merging(written) { _, new in new })
        saved.records[table, default: [:]][key] = Record(image, at: former?.version.position)
    }

    /// Sends writes. If the server refuses a write, the app shows the server's version again.
    public func sendWrites() async {
        await writes.run { write in
            if !writes.hasUnsentWrite(table: write.table, row: write.row) { saved.former[write.name] = nil }
        } lost: { write, why in
            if let former = saved.former.removeValue(forKey: write.name) {
                saved.records[write.table, default: [:]][write.row] = former
            }
            problems.append(TidewireProblem(code: "NotWritten", message: "\(write.name): \(why)", severity: .error))
        }
    }
}
