/// Record of the position from which a loop may have decided on changes by a catalog version that it has not applied
/// yet.
///
/// The loop can read a new version before the mail about it arrives. A channel that joins before the mail is bound by
/// the new version.
struct NewerCatalog {
    /// Offset before which decisions were final when the last turn began; the maximum value if the loop decides on no
    /// changes.
    private var judgedBefore = UInt64.max
    /// Newest catalog version that was readable at the begin of a turn.
    private var seen: UInt64 = 0
    /// Value of `judgedBefore` when a newer version was first seen; nil if the loop has applied the newest version
    /// seen.
    private var since: UInt64?

    /// Records, at the begin of a turn, which catalog version is readable and before which offset the loop's decisions
    /// are final; nil if it decides on no changes.
    mutating func noteTurn(_ version: UInt64, judgedUpTo offset: UInt64?) {
        if version != seen {
            seen = version
            since = min(since ?? judgedBefore, judgedBefore)
        }
        judgedBefore = offset ?? .max
    }

    /// Records that the loop applies the version. Returns the offset from which it may already have decided by this
    /// version.
    mutating func adopt(_ version: UInt64) -> UInt64 {
        defer { (seen, since) = (version, nil) }
        return since ?? judgedBefore
    }
}
