import Diagnostics
import System

/// Whether those who take what they get come along with what is sent.
extension SocketLoop {
    /// Somebody has more than half of its outbox queued and keeps taking it: who waits a little does not lose it. One
    /// that takes nothing is not worth waiting for.
    public var isCrowded: Bool {
        guard blockedCount > 0 else { return false }
        return backlogs.contains { backlog in
            backlog.seat != nil && backlog.byteCount > settings.outboxBytes / 2
                && now - backlog.takenAt < Limits.crowdPulse.nanoseconds
        }
    }

    /// Nobody should get more in one turn: it is what a turn can add beyond the mark at which others wait.
    public var hasQueuedEnough: Bool { largestQueue > settings.outboxBytes / 8 }
}
