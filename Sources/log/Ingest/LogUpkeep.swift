import Diagnostics
import Synchronization
import System

/// What others ask of the ingest thread so that they may change segments beside it: that it seals what is written. Of one log.
final class LogUpkeep: Sendable {
    /// How often it was asked, and up to which of these it did.
    private let asked = Atomic<UInt64>(0)
    private let done = Atomic<UInt64>(0)
    private let pulse = Pulse()

    /// All that was in the log lies in sealed segments afterwards. False where the ingest thread did not come to it in time:
    /// it waits for the database or the disk, or a large transaction is under way.
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

    /// Which wish is to be answered; nil where all are.
    var wish: UInt64? {
        let wanted = asked.load(ordering: .sequentiallyConsistent)
        return wanted > done.load(ordering: .sequentiallyConsistent) ? wanted : nil
    }

    func answer(_ wish: UInt64) {
        done.store(wish, ordering: .sequentiallyConsistent)
        pulse.beat()
    }
}
