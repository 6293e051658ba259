import Diagnostics

/// Internal limits on the time and memory of snapshots. They are not promised to users; promised limits are in
/// `Diagnostics/Limits.swift`.
extension Limits {
    /// Bytes and rows of a page. A page is full when it reaches either limit.
    static let snapshotPageBytes = 128 << 10
    static let snapshotPageRows = 500
    /// Number of tries if a table is rewritten between the snapshot and the table's lock.
    static let snapshotTries = 3
    /// Time for which no snapshot is tried after the database could not be reached.
    static let snapshotRest = Duration.seconds(1)
    /// Largest number of changes in the log that a snapshot looks through. Otherwise it waits until a search is not
    /// needed.
    static let snapshotLookbackChanges: UInt64 = 16_384
    /// Time that a snapshot waits for the transactions that were running when it was asked for.
    static let snapshotSettlingPatience = Duration.seconds(1)
    static let snapshotSettlingInterval = Duration.milliseconds(5)
}
