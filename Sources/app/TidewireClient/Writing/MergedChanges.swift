import Foundation

/// A row with the times that are needed to resolve a conflict between two of its versions.
public protocol DatedRow: LiveRow {
    /// Time of the row's last change; nil if it has none.
    var updatedAt: Date? { get }
    /// Time at which the row was marked as deleted; nil if it was not.
    var deletedAt: Date? { get }
}

extension DatedRow {
    /// Default: nil, for row types without soft deletion.
    public var deletedAt: Date? { nil }
}

/// The app's local version of a row.
public struct LocalRow: Sendable, Hashable {
    /// Facts about the app's version.
    public var version: RowVersion
    /// True if the row has changes that the server has not received yet.
    public var hasUnsentWrite: Bool

    /// Creates a local row from the facts about its version.
    public init(_ version: RowVersion, hasUnsentWrite: Bool = false) {
        self.version = version
        self.hasUnsentWrite = hasUnsentWrite
    }
}

/// A batch without the changes that lost a conflict with the app's own rows. The app saves it unchanged, with its
/// position.
public struct MergedBatch<Row: DatedRow>: Sendable {
    /// Rows to store, in the order of commits. Each row occurs once, in its last version.
    public internal(set) var rowsToStore: [Row] = []
    /// Ids of rows to remove.
    public internal(set) var idsToRemove: [Row.ID] = []
    /// Ids of rows whose local version is newer and remains.
    public internal(set) var keptIDs: [Row.ID] = []
    /// True if the batch has all existing rows. The app must then remove all other local rows that have no unsent
    /// write.
    public internal(set) var isEverything = false
    /// Position to save together with the rows; nil if the server has no positions.
    public internal(set) var position: LogPosition?
    /// The batch as received. It has the problems, the unreadable rows, and whether the query has caught up.
    public let batch: LiveBatch<Row>
}

extension LiveChanges where Row: DatedRow {
    /// Receives the query's batches, resolves conflicts with local rows, and passes the result to `apply` for saving.
    /// Returns when the query ends, and rethrows an error of `local` or `apply`. After an error the batch counts as not
    /// saved: a new query from the saved position receives its changes again.
    ///
    /// ```swift
    /// try await tidewire.live(Expense.self, where: \.ownerID == me, after: store.position)
    ///     .apply(merging: LastWriteWins(), with: store.local) { merged in
    ///         try store.save(merged.rowsToStore, removing: merged.idsToRemove, at: merged.position)
    ///     }
    /// ```
    ///
    /// - Parameters:
    ///   - policy: decides which version of a row wins.
    ///   - local: returns the app's version of a row.
    ///   - apply: saves the batch and its position in one transaction.
    nonisolated(nonsending) public func apply(
        merging policy: some ConflictPolicy = LastWriteWins(), with local: (Row.ID) throws -> LocalRow?,
        _ apply: (MergedBatch<Row>) throws -> Void
    ) async throws {
        var batches = makeAsyncIterator()
        while let batch = await batches.next(), !Task.isCancelled {
            try apply(try batch.merged(by: policy, with: local))
        }
    }
}

extension LiveBatch where Row: DatedRow {
    /// Returns the batch without the changes that lost a conflict. For apps that iterate over the batches themselves.
    ///
    /// - Parameters:
    ///   - policy: decides which version of a row wins.
    ///   - local: returns the app's version of a row.
    /// - Throws: an error of `local`.
    public func merged(
        by policy: some ConflictPolicy, with local: (Row.ID) throws -> LocalRow?
    ) throws -> MergedBatch<Row> {
        var merge = Merge<Row, _>(policy: policy, position: position)
        for row in rows ?? [] { try merge.take(row.id, row, local) }
        for change in changes { try merge.take(change.id, change.row, local) }
        var merged = MergedBatch(batch: self)
        merged.isEverything = rows != nil
        merged.position = position
        for (id, outcome) in merge.outcomes.sorted(by: { $0.value.order < $1.value.order }) {
            switch outcome.end {
            case .stored(let row): merged.rowsToStore.append(row)
            case .removed: merged.idsToRemove.append(id)
            case .kept: merged.keptIDs.append(id)
            }
        }
        return merged
    }
}

/// Results of merging one batch: for each row, whether the app stores, removes or keeps it. A row may occur several
/// times in the batch.
private struct Merge<Row: DatedRow, Policy: ConflictPolicy> {
    enum End {
        case stored(Row)
        case removed
        case kept
    }

    let policy: Policy
    let position: LogPosition?
    private(set) var outcomes: [Row.ID: (end: End, order: Int)] = [:]
    private var count = 0

    init(policy: Policy, position: LogPosition?) {
        self.policy = policy
        self.position = position
    }

    /// Resolves the conflict between a change of the batch and the app's row. `remote` is nil if the row was deleted on
    /// the server.
    mutating func take(_ id: Row.ID, _ remote: Row?, _ stored: (Row.ID) throws -> LocalRow?) throws {
        count += 1
        let here = try local(id, stored)
        let hasUnsent = here?.hasUnsentWrite ?? false
        let resolution =
            if let remote {
                policy.resolve(local: here?.version, remote: version(remote), hasUnsentWrite: hasUnsent)
            } else {
                policy.resolveDeletion(local: here?.version, at: position, hasUnsentWrite: hasUnsent)
            }
        let end: End? =
            switch resolution {
            case .keepLocal: outcomes[id] == nil ? .kept : nil
            case .delete: .removed
            case .insert, .takeRemote, .deleteSoftly, .undelete: remote.map { .stored($0) }
            }
        if let end { outcomes[id] = (end, count) }
    }

    /// Returns the local row as it is after the changes of this batch so far.
    private func local(_ id: Row.ID, _ stored: (Row.ID) throws -> LocalRow?) throws -> LocalRow? {
        switch outcomes[id]?.end {
        case .stored(let row): LocalRow(version(row), hasUnsentWrite: try stored(id)?.hasUnsentWrite ?? false)
        case .removed: nil
        case .kept, nil: try stored(id)
        }
    }

    private func version(_ row: Row) -> RowVersion {
        RowVersion(updatedAt: row.updatedAt, deletedAt: row.deletedAt, position: position)
    }
}
