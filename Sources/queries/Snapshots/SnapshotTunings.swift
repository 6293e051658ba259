import Diagnostics

/// How the room shares out its time and memory: promised to nobody. Its maxima are in `Diagnostics/Limits.swift`.
extension Limits {
    /// What a page holds: it is full when it has one of these.
    static let snapshotPageBytes = 128 << 10
    static let snapshotPageRows = 500
    /// Tries where a table was written anew between the snapshot and the first look at it.
    static let snapshotTries = 3
    /// Nothing is tried for so long after the database could not be reached.
    static let snapshotRest = Duration.seconds(1)
    /// Number of changes of the log that a snapshot may look through. Beyond it, the snapshot waits until it need not.
    static let snapshotLookbackChanges: UInt64 = 16_384
    /// Time that a snapshot waits for the transactions that were running when it was asked for.
    static let snapshotSettlingPatience = Duration.seconds(1)
    static let snapshotSettlingInterval = Duration.milliseconds(5)
}
