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
    /// Commits of the log of which it is remembered whether a snapshot shows them.
    static let snapshotRecentCommits = 65_536
    /// How far it looks back for those when it begins.
    static let snapshotLookback = Duration.seconds(60)
    static let snapshotLookbackChanges: UInt64 = 16_384
}
