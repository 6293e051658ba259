import Diagnostics
import Net

/// Who is told to go when, where the hub ends. In: all that are here, and the clock. Out: those whose turn it is, in an order
/// of chance and spread evenly, so that they do not all come back at one moment.
struct Farewells {
    /// The one who goes next is the last.
    private var waiting: [ConnectionID]
    private let total: Int
    private let began: UInt64
    private let span: UInt64

    /// - Parameter time: what they may take at most; a few take less.
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

    /// Those that are left, whose turn is now.
    mutating func takeAll() -> [ConnectionID] {
        defer { waiting = [] }
        return waiting.reversed()
    }

    mutating func takeDue(_ now: UInt64) -> [ConnectionID] {
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
