import Diagnostics
import Synchronization
import System

/// Requests to the ingest thread to seal the current segment, so that other threads can rewrite sealed segments.
final class LogUpkeep: Sendable {
    /// Number of requests so far to seal the current segment.
    private let asked = Atomic<UInt64>(0)
    /// Number of the last request to seal a segment that the ingest thread has answered.
    private let done = Atomic<UInt64>(0)
    private let pulse = Pulse()

    /// Makes the ingest thread seal everything that the log has. Returns false if it does not respond in time: it waits
    /// for the database or the disk, or a large transaction is being received.
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

    /// Number of the newest request to seal the segment, if it has not been answered; nil otherwise.
    var wish: UInt64? {
        let wanted = asked.load(ordering: .sequentiallyConsistent)
        return wanted > done.load(ordering: .sequentiallyConsistent) ? wanted : nil
    }

    /// Answers all requests to seal the segment up to this number.
    func answer(_ wish: UInt64) {
        assert(
            done.load(ordering: .sequentiallyConsistent) < wish
                && wish <= asked.load(ordering: .sequentiallyConsistent), "each request is answered once")
        done.store(wish, ordering: .sequentiallyConsistent)
        pulse.beat()
    }
}
