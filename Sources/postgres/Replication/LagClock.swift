import Change

/// Clock for the lag of the log: the time since it last had all changes of the server. At intervals, the clock gets the
/// end of the server's WAL and the log's position. Times are nanoseconds of one monotonic clock.
///
/// The lag is never too high. If WAL was written between two samples, the time of the later one counts.
struct LagClock {
    private var isConnected = false
    /// Last known time at which the log had all changes.
    private var caughtUpAt: UInt64
    /// Ends of the server's WAL that the log has not reached yet, each with the time at which it was first seen.
    private var ahead: [(end: LSN, at: UInt64)] = []

    /// Maximum number of ends of the WAL in `ahead`. If there are more, every second one is removed, and the minimum
    /// time between new ones grows.
    private static let maximum = 256
    /// Minimum time in nanoseconds between two ends of the WAL in `ahead`.
    private var distance: UInt64 = 0

    /// Creates a clock.
    ///
    /// - Parameter caughtUpAt: time at which the previous process last wrote its log.
    init(caughtUpAt: UInt64) { self.caughtUpAt = caughtUpAt }

    /// Records the current end of the server's WAL and the log's position.
    mutating func saw(_ end: LSN, _ position: LSN, at now: UInt64) {
        // The log was behind already before this connection.
        if ahead.isEmpty, end > position { ahead.append((end, isConnected ? now : caughtUpAt)) }
        isConnected = true
        if let last = ahead.last, end > last.end, now - min(now, last.at) >= distance { ahead.append((end, now)) }
        if let first = ahead.first, ahead.count > Self.maximum {
            ahead = ahead.indices.filter { $0 % 2 == 0 }.map { ahead[$0] }
            distance = (now - min(now, first.at)) / UInt64(Self.maximum / 2)
        }
        assert(ahead.count <= Self.maximum, "a long lag takes no more room")
        assert(
            ahead.count < 2 || ahead[ahead.count - 2].end < ahead[ahead.count - 1].end,
            "each sample lies behind the one before")
        pass(position, at: now)
    }

    /// Records that the log has reached a position.
    mutating func pass(_ position: LSN, at now: UInt64) {
        ahead.removeAll { $0.end <= position }
        guard ahead.isEmpty else { return }
        distance = 0
        if isConnected { caughtUpAt = now }
    }

    /// Records that the connection is lost, so the end of the server's WAL is unknown.
    mutating func lost(_ position: LSN, at now: UInt64) {
        pass(position, at: now)
        isConnected = false
    }

    /// Returns the lag of the log in seconds.
    func seconds(at now: UInt64) -> Int64 {
        if ahead.isEmpty, isConnected { return 0 }
        let since = ahead.first?.at ?? caughtUpAt
        return Int64((now - min(now, since)) / 1_000_000_000)
    }
}
