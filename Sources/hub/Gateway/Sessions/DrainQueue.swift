import Diagnostics
import Net

/// Order and times in which the hub disconnects clients before it stops. Clients leave in random order and evenly over
/// time, so that they do not all reconnect at the same moment.
struct DrainQueue {
    /// Clients that are still connected; the last one leaves next.
    private var waiting: [ConnectionID]
    /// Number of clients when the schedule was made.
    private let total: Int
    /// Monotonic time in nanoseconds at which the first client leaves.
    private let began: UInt64
    /// Duration in nanoseconds until all clients have left.
    private let span: UInt64

    /// Creates a schedule that begins at `now`.
    ///
    /// - Parameter time: maximum duration until all clients have left; a few clients take less.
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

    /// Removes and returns all remaining clients.
    mutating func takeAll() -> [ConnectionID] {
        defer { waiting = [] }
        return waiting.reversed()
    }

    /// Removes and returns the clients that must leave by `now`, in monotonic nanoseconds.
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
