/// Place in the log from which a loop may have judged by a catalog version that it has not adopted yet.
///
/// The version is visible to the loop before its mail arrives, and a channel that joins meanwhile is bound by it at once.
struct NewerCatalog {
    /// Offset up to which changes were judged before the last turn.
    private var judgedBefore = UInt64.max
    private var seen: UInt64 = 0
    /// Value of `judgedBefore` when a newer version was first seen; nil if the loop has adopted what it has seen.
    private var since: UInt64?

    /// Notes at a turn's beginning which version is visible, and how far the loop has judged; nil if it judges nothing.
    mutating func noteTurn(_ version: UInt64, judgedUpTo offset: UInt64?) {
        if version != seen {
            seen = version
            since = min(since ?? judgedBefore, judgedBefore)
        }
        judgedBefore = offset ?? .max
    }

    /// Notes that the loop adopts the version. Returns the offset from which changes may have been judged by it already.
    mutating func adopt(_ version: UInt64) -> UInt64 {
        defer { (seen, since) = (version, nil) }
        return since ?? judgedBefore
    }
}
