import Diagnostics
import System

/// Signals to the application about connections that take output too slowly.
extension SocketLoop {
    /// Size of a backlog above which a connection counts as filled. The more connections are blocked, the lower the
    /// size, so that together they hold little.
    var filledBytes: Int {
        let share = settings.outboxTotalBytes / 4 / max(1, backlogs.count)
        return min(settings.filledBytes, max(share, Limits.leastFilledBytes))
    }

    /// Tells the application which connections are filled and which have drained. It postpones output for filled
    /// connections and continues when they have taken everything.
    func tellFilled() {
        while let seat = filled.popLast() {
            guard table[Int(seat)].stage == .open, table[Int(seat)].flags.contains(.isFilled) else { continue }
            application.filled(table.id(of: Int(seat)))
        }
        while let seat = drained.popLast() {
            guard table[Int(seat)].stage == .open, !table[Int(seat)].flags.contains(.isFilled) else { continue }
            application.drained(table.id(of: Int(seat)))
        }
    }

    /// True if some connection has so much output in this turn that it should get no more. This is the amount by which
    /// a turn may exceed the size of a filled backlog.
    public var hasQueuedEnough: Bool { largestQueue > settings.outboxBytes / 8 }
}
