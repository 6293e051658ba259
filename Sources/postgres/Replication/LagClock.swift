import Change

/// Clock for the slot's lag: the time since the log had all changes of the server. The clock takes the end of the
/// server's WAL and the log's position at intervals. Times are nanoseconds of one monotonic clock.
///
/// The lag is never too high: WAL written between two samples counts from the later one.
struct LagClock {
    private var isConnected = false
    /// Last known time at which the log had everything.
    private var caughtUpAt: UInt64
    /// Ends of the WAL that the log has not reached yet, each with the time when it was first seen.
    private var ahead: [(end: LSN, at: UInt64)] = []

    /// Maximum number of samples. Above this number, every second one is dropped, and the distance between new ones
    /// doubles.
    private static let maximum = 256
    private var distance: UInt64 = 0

    /// - Parameter caughtUpAt: time when the previous process last wrote its log.
    init(caughtUpAt: UInt64) { self.caughtUpAt = caughtUpAt }

    /// Records the present end of the server's WAL.
    mutating func saw(_ end: LSN, _ position: LSN, at now: UInt64) {
        // The log was already behind before the connection.
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

    func seconds(at now: UInt64) -> Int64 {
        if ahead.isEmpty, isConnected { return 0 }
        let since = ahead.first?.at ?? caughtUpAt
        return Int64((now - min(now, since)) / 1_000_000_000)
    }
}
