import Foundation

/// A row with the time of its last change, by which a conflict between two versions is resolved.
public protocol DatedRow: LiveRow {
    /// Time of the last change; nil for a row without one.
    var updatedAt: Date? { get }
    /// Time of a soft deletion; nil for all other rows.
    var deletedAt: Date? { get }
}

extension DatedRow {
    /// Nil: rows of a type without soft deletions are never deleted so.
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

/// A batch without the changes that lost against the app's own rows. The app saves it as it is, with its position.
public struct MergedBatch<Row: DatedRow>: Sendable {
    /// Rows to store, in the order of commits. Each row occurs once, in its final version.
    public internal(set) var rowsToStore: [Row] = []
    /// Ids of rows to remove.
    public internal(set) var idsToRemove: [Row.ID] = []
    /// Ids of rows whose local version is newer and stays.
    public internal(set) var keptIDs: [Row.ID] = []
    /// True if the batch has all existing rows. Every other local row that was already sent is then deleted.
    public internal(set) var isEverything = false
    /// Position of the stored rows, from which the app resumes.
    public internal(set) var position: LogPosition?
    /// The original batch: problems, unreadable rows, and whether the query has caught up.
    public let batch: LiveBatch<Row>
}

extension LiveChanges where Row: DatedRow {
    /// Takes each batch, resolves conflicts with local rows, and passes the rest to `apply` for saving. Ends with the
    /// query, or with an error of `apply`. After an error nothing counts as saved: a new query from the saved position
    /// receives the same changes again.
    ///
    /// ```swift
    /// try await tidewire.live(Expense.self, where: \.ownerID == me, after: store.position)
    ///     .apply(merging: LastWriteWins(), with: store.local) { merged in
    ///         try store.save(merged.rowsToStore, removing: merged.idsToRemove, at: merged.position)
    ///     }
    /// ```
    ///
    /// - Parameters:
    ///   - policy: decides which version wins.
    ///   - local: returns the app's version of a row.
    ///   - apply: saves the batch, in one transaction of the app's own.
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
    /// Returns the batch without the changes that lost, for apps that take batches by themselves.
    ///
    /// - Parameters:
    ///   - policy: decides which version wins.
    ///   - local: returns the app's version of a row.
    /// - Throws: the errors of `local`.
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

/// Outcome for each row of one batch, which may contain a row several times.
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

    /// Returns the local row after the changes that this batch has made so far.
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
