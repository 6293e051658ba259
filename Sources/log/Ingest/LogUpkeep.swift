import Diagnostics
import Synchronization
import System

/// Requests to the ingest thread of one log to seal the present segment, so that other threads can rewrite sealed
/// segments.
final class LogUpkeep: Sendable {
    /// Number of requests, and the last request that was answered.
    private let asked = Atomic<UInt64>(0)
    private let done = Atomic<UInt64>(0)
    private let pulse = Pulse()

    /// Seals everything that was in the log. Returns false if the ingest thread did not respond in time: it waits for
    /// the database or the disk, or a large transaction is in progress.
    func seal(within patience: Duration) -> Bool {
        let wanted = asked.add(1, ordering: .sequentiallyConsistent).newValue
        let deadline = Clock.monotonicNanoseconds() + patience.wholeNanoseconds
        var seen: UInt64 = 0
        while done.load(ordering: .sequentiallyConsistent) < wanted {
            guard Clock.monotonicNanoseconds() < deadline else { return false }
            seen = pulse.wait(beyond: seen, untilMonotonic: deadline)
        }
        return true
    }

    // MARK: The ingest thread

    /// Newest request that needs an answer; nil if all are answered.
    var wish: UInt64? {
        let wanted = asked.load(ordering: .sequentiallyConsistent)
        return wanted > done.load(ordering: .sequentiallyConsistent) ? wanted : nil
    }

    func answer(_ wish: UInt64) {
        assert(
            done.load(ordering: .sequentiallyConsistent) < wish
                && wish <= asked.load(ordering: .sequentiallyConsistent), "each request is answered once")
        done.store(wish, ordering: .sequentiallyConsistent)
        pulse.beat()
    }
}
