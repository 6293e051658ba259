import Change

/// How long ago the log had everything that the server had: the slot's lag in seconds. In: where the server's WAL ends, and
/// how far the log has come, now and then. Nanoseconds, on one clock that does not go back.
///
/// It never says more than is so: what came between two looks counts from the later one.
struct LagClock {
    private var isConnected = false
    /// The log had everything then, as far as is known.
    private var caughtUpAt: UInt64
    /// Ends of the WAL that the log has not come to yet, each with when it was seen first.
    private var ahead: [(end: LSN, at: UInt64)] = []

    /// Every second one is forgotten where there are more, and they are taken at twice the distance from there on.
    private static let maximum = 256
    private var distance: UInt64 = 0

    /// - Parameter caughtUpAt: when the process before this one wrote its log last.
    init(caughtUpAt: UInt64) { self.caughtUpAt = caughtUpAt }

    /// The server's WAL ends there.
    mutating func saw(_ end: LSN, _ position: LSN, at now: UInt64) {
        // It was so already when nobody could look.
        if ahead.isEmpty, end > position { ahead.append((end, isConnected ? now : caughtUpAt)) }
        isConnected = true
        if let last = ahead.last, end > last.end, now - min(now, last.at) >= distance { ahead.append((end, now)) }
        if let first = ahead.first, ahead.count > Self.maximum {
            ahead = ahead.indices.filter { $0 % 2 == 0 }.map { ahead[$0] }
            distance = (now - min(now, first.at)) / UInt64(Self.maximum / 2)
        }
        pass(position, at: now)
    }

    /// The log has come there.
    mutating func pass(_ position: LSN, at now: UInt64) {
        ahead.removeAll { $0.end <= position }
        guard ahead.isEmpty else { return }
        distance = 0
        if isConnected { caughtUpAt = now }
    }

    /// Nobody can say how far the server is.
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
