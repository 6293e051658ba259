import Foundation
import Observation
import TidewireClient

/// The devices of one person keep their expenses alike: six tables on one subscription, the last write wins, and what is
/// written without a network is sent later.
@MainActor @Observable
public final class ExpensesModel {
    public static let tables = [
        "financial_transactions", "settlements", "chat_messages", "reminders", "subscriptions",
        "subscription_reminders",
    ]

    /// A row as it is kept, with what decides between it and another of it.
    public struct Record: Sendable {
        public var image: RowImage
        public var version: RowVersion
    }

    /// What the app saves in one go: the rows and where they stand.
    public struct Saved: Sendable {
        public var records: [String: [String: Record]] = [:]
        public var position: Position?

        public init() {}
    }

    public private(set) var saved: Saved
    /// How often something was saved: bursts are one save.
    public private(set) var saves = 0
    public private(set) var problems: [Problem] = []

    private let tidewire: Tidewire
    private let writes: OfflineWrites
    private let me: UUID
    private let policy = LastWriteWins()
    private let fetch: @Sendable (String) async throws -> [RowImage]

    public init(
        _ tidewire: Tidewire, writes: OfflineWrites, me: UUID, saved: Saved = Saved(),
        fetch: @escaping @Sendable (_ table: String) async throws -> [RowImage]
    ) {
        self.tidewire = tidewire
        self.writes = writes
        self.me = me
        self.saved = saved
        self.fetch = fetch
    }

    /// Green means that nothing that was missed is still on its way, and nothing of one's own either.
    public var isSynced: Bool { tidewire.state == .live && writes.waiting.isEmpty }

    public func record(_ table: String, _ id: UUID) -> Record? { saved.records[table]?[id.uuidString.lowercased()] }

    public func run() async {
        let filter = "owner_id=eq.\(me.uuidString.lowercased())"
        let bindings = Self.tables.map { Binding(table: $0, filter: filter) }
        let windows = ["chat_messages": BatchWindow.immediate]
        for await batch in tidewire.changes(of: bindings, after: saved.position, windows: windows) {
            if batch.isFirst || batch.mustRefetch != nil { await fetchAll() }
            take(batch)
            if Task.isCancelled { return }
        }
    }

    private func take(_ batch: TableBatch) {
        problems += batch.problems
        for change in batch.changes { take(change) }
        if let position = batch.position { saved.position = position }
        if !batch.changes.isEmpty { saves += 1 }
    }

    private func take(_ change: RowChange) {
        let image = RowImage(change.kind == .insert || change.kind == .update ? change.record : change.oldRecord)
        guard let id = image["id"]?.text else { return }
        let local = saved.records[change.table]?[id]?.version
        let hasUnsent = writes.hasUnsent(change.table, id)
        let resolution =
            switch change.kind {
            case .insert, .update:
                policy.resolve(
                    local: local, remote: Self.version(image, at: change.position), hasUnsentWrite: hasUnsent)
            case .delete, .leaving:
                policy.resolveDeletion(local: local, at: change.position, hasUnsentWrite: hasUnsent)
            }
        switch resolution {
        case .keepLocal: break
        case .delete: saved.records[change.table]?[id] = nil
        case .insert, .takeRemote, .deleteSoftly, .undelete:
            let record = Record(image: image, version: Self.version(image, at: change.position))
            saved.records[change.table, default: [:]][id] = record
        }
    }

    private static func version(_ image: RowImage, at position: Position?) -> RowVersion {
        RowVersion(
            updatedAt: try? image.decode(Date.self, column: "updated_at"),
            deletedAt: try? image.decode(Date.self, column: "deleted_at"), position: position)
    }

    /// What there is now; what was not sent yet stays.
    private func fetchAll() async {
        for table in Self.tables {
            do {
                let images = try await fetch(table)
                let unsent = (saved.records[table] ?? [:]).filter { writes.hasUnsent(table, $0.key) }
                let pairs = images.compactMap { image in
                    image["id"]?.text.map { ($0, Record(image: image, version: Self.version(image, at: nil))) }
                }
                saved.records[table] = Dictionary(pairs) { _, last in last }.merging(unsent) { _, own in own }
            } catch {
                problems.append(Problem(code: "NotFetched", message: "\(error)", severity: .error))
            }
        }
    }

    /// Shown at once, sent when it can be.
    public func write(_ table: String, _ id: UUID, _ values: [String: JSONValue], at date: Date = Date()) throws {
        let key = id.uuidString.lowercased()
        let isNew = saved.records[table]?[key] == nil
        var record = saved.records[table]?[key] ?? Record(image: RowImage([:]), version: RowVersion(updatedAt: nil))
        record.image.values.merge(values) { _, new in new }
        record.image.values["id"] = .string(key)
        record.version = RowVersion(
            updatedAt: date, isDeleted: record.version.isDeleted, position: record.version.position)
        try writes.add(
            PendingWrite(table: table, row: key, kind: isNew ? .insert : .update, values: values, madeAt: date))
        saved.records[table, default: [:]][key] = record
    }

    /// What the server refused is not shown any more.
    public func sendWrites() async {
        await writes.run { write, why in
            saved.records[write.table]?[write.row] = nil
            problems.append(Problem(code: "NotWritten", message: "\(write.name): \(why)", severity: .error))
        }
    }
}
