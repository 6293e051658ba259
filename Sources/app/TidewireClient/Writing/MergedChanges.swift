import Foundation

/// A row that says when it was changed, which decides between it and another of it.
public protocol DatedRow: LiveRow {
    var updatedAt: Date? { get }
    /// Of rows that are deleted softly; nil for all others.
    var deletedAt: Date? { get }
}

extension DatedRow {
    public var deletedAt: Date? { nil }
}

/// What the app has of a row.
public struct LocalRow: Sendable, Hashable {
    public var version: RowVersion
    /// It has changes that the server has not been told.
    public var hasUnsentWrite: Bool

    public init(_ version: RowVersion, hasUnsentWrite: Bool = false) {
        self.version = version
        self.hasUnsentWrite = hasUnsentWrite
    }
}

/// A batch with what has lost against the app's own rows left out: to be saved as it is, with its position.
public struct MergedBatch<Row: DatedRow>: Sendable {
    /// To be stored in place of what is there, in the order of commits: each row once, as it is in the end.
    public internal(set) var stored: [Row] = []
    /// To be removed.
    public internal(set) var removed: [Row.ID] = []
    /// What the app has is newer: it stays.
    public internal(set) var kept: [Row.ID] = []
    /// These are all rows there are: whatever the app has besides `stored` and `kept`, and has sent, is gone.
    public internal(set) var isEverything = false
    /// Where the rows stand that were stored, and where the app goes on.
    public internal(set) var position: Position?
    /// As it came: problems, rows that could not be read, whether it has caught up.
    public let batch: Batch<Row>
}

extension LiveChanges where Row: DatedRow {
    /// Takes each batch, decides between what it has and what is here, and gives the rest to be saved. Ends with the query, or
    /// with an error of `apply`: nothing counts as saved then, and whoever asks again from the saved position is told it again.
    ///
    /// ```swift
    /// try await tidewire.live(Expense.self, where: \.ownerID == me, after: store.position)
    ///     .apply(merging: LastWriteWins(), with: store.local) { merged in
    ///         try store.save(merged.stored, removing: merged.removed, at: merged.position)
    ///     }
    /// ```
    ///
    /// - Parameters:
    ///   - policy: who wins.
    ///   - local: what the app has of a row.
    ///   - apply: saves, in one transaction of the app's own.
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

extension Batch where Row: DatedRow {
    /// See `LiveChanges.apply(merging:with:_:)`; for apps that take batches by themselves.
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
            case .stored(let row): merged.stored.append(row)
            case .removed: merged.removed.append(id)
            case .kept: merged.kept.append(id)
            }
        }
        return merged
    }
}

/// What becomes of each row in one batch, which may have it several times.
private struct Merge<Row: DatedRow, Policy: ConflictPolicy> {
    enum End {
        case stored(Row)
        case removed
        case kept
    }

    let policy: Policy
    let position: Position?
    private(set) var outcomes: [Row.ID: (end: End, order: Int)] = [:]
    private var count = 0

    init(policy: Policy, position: Position?) {
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

    /// As this batch has left it so far.
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
