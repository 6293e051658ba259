import Diagnostics

/// Internal limits of time and memory for the `Snapshots` room. They are no part of a promise. The limits that users
/// rely on are in `Diagnostics/Limits.swift`.
extension Limits {
    /// Size in bytes from which a page of a snapshot is full.
    static let snapshotPageBytes = 128 << 10
    /// Number of rows from which a page of a snapshot is full.
    static let snapshotPageRows = 500
    /// Maximum number of attempts to take a snapshot, if a table is rewritten between the snapshot and the table's
    /// lock.
    static let snapshotTries = 3
    /// Duration for which no snapshot is attempted after the database was unreachable.
    static let snapshotRest = Duration.seconds(1)
    /// Maximum number of changes in the log that a snapshot searches for commits that it does not show. If there were
    /// more, it waits instead until running transactions have ended.
    static let snapshotLookbackChanges: UInt64 = 16_384
    /// Maximum duration for which a snapshot waits for transactions that were running when it was requested.
    static let snapshotSettlingPatience = Duration.seconds(1)
    /// Interval at which a waiting snapshot checks if the transactions that it waits for have ended.
    static let snapshotSettlingInterval = Duration.milliseconds(5)
}
