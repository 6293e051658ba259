import Diagnostics
import Net

/// Schedule by which clients are sent away when the hub stops. Clients leave in random order and evenly over time, so
/// that they do not all reconnect at the same moment.
struct DrainQueue {
    /// Clients not sent away yet, in reverse order.
    private var waiting: [ConnectionID]
    private let total: Int
    private let began: UInt64
    private let span: UInt64

    /// - Parameter time: longest duration for all clients; a few clients take less.
    init(
        _ connections: [ConnectionID], within time: Duration, from now: UInt64,
        using chance: inout some RandomNumberGenerator
    ) {
        waiting = connections.shuffled(using: &chance)
        total = connections.count
        began = now
        let atLeastPace = UInt64(connections.count) * 1_000_000_000 / UInt64(Limits.leastFarewellsPerSecond)
        span = min(time.wholeNanoseconds, atLeastPace)
    }

    var isOver: Bool { waiting.isEmpty }

    /// Returns all remaining clients, and ends the schedule.
    mutating func takeAll() -> [ConnectionID] {
        defer { waiting = [] }
        return waiting.reversed()
    }

    mutating func takeDue(_ now: UInt64) -> [ConnectionID] {
        assert(waiting.count <= total, "no client is sent away twice")
        let elapsed = now > began ? now - began : 0
        guard elapsed < span else {
            defer { waiting = [] }
            return waiting.reversed()
        }
        let due = Int((Double(total) * Double(elapsed) / Double(span)).rounded(.up))
        let count = min(waiting.count, max(0, due - (total - waiting.count)))
        defer { waiting.removeLast(count) }
        return waiting.suffix(count).reversed()
    }
}
