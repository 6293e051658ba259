import Diagnostics
import System

/// Whether those who take what they get come along with what is sent.
extension SocketLoop {
    /// From here on a connection is filled. The more there are that take too slowly, the less each may have queued, so that
    /// all of them hold little.
    var filledBytes: Int {
        let share = settings.outboxTotalBytes / 4 / max(1, blockedCount)
        return min(settings.filledBytes, max(share, Limits.leastFilledBytes))
    }

    /// The application stops sending what it can send later, and goes on when the connection has taken everything.
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

    /// Nobody should get more in one turn: it is what a turn can add beyond the mark at which others wait.
    public var hasQueuedEnough: Bool { largestQueue > settings.outboxBytes / 8 }
}
