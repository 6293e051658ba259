import Change

/// Watch of the log's coverage that notices when nothing reaches the log, for example while no node of a cluster feeds
/// it. Whoever waits for the log then delays nobody, because there is nothing that could be delivered.
struct LogMotion {
    private var covered: LSN
    private var movedAt: UInt64
    private var lookedAt: UInt64
    /// True if the log stood at the last look, and the wait for it delayed nobody.
    private(set) var stands = false

    /// Time without progress after which the log counts as standing. A log that is fed moves more often.
    static let grace: UInt64 = 1_000_000_000

    init(_ covered: LSN, at now: UInt64) {
        self.covered = covered
        movedAt = now
        lookedAt = now
    }

    /// Records how far the log covers the database now. Returns the time since the last look for which the log stood.
    ///
    /// - Parameter delaysOthers: true if the log has entries that the wait keeps from others. Then the log does not
    ///   count as standing.
    mutating func look(_ covered: LSN, at now: UInt64, delaysOthers: Bool) -> UInt64 {
        defer { lookedAt = max(lookedAt, now) }
        if covered != self.covered { (self.covered, movedAt) = (covered, now) }
        let standsSince = max(lookedAt, movedAt + Self.grace)
        stands = now > movedAt + Self.grace && !delaysOthers
        return stands && now > standsSince ? now - standsSince : 0
    }
}
