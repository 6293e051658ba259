import Synchronization
import System

/// Blocking wait for an answer from another thread. Only commands use it: their thread has nothing else to do.
enum Awaiting {
    private final class Box<Value: Sendable>: Sendable {
        let value = Mutex<Value?>(nil)
        let pulse = Pulse()
    }

    /// Calls `ask`, then blocks until its callback gets the answer. Returns nil if there is no answer within the limit.
    static func answer<Value: Sendable>(
        within limit: Duration, _ ask: (@escaping @Sendable (Value) -> Void) -> Void
    ) -> Value? {
        assert(limit > .zero, "an answer gets time to come")
        let box = Box<Value>()
        ask { value in
            box.value.withLock { $0 = value }
            box.pulse.beat()
        }
        let (seconds, attoseconds) = limit.components
        let nanoseconds = UInt64(seconds) * 1_000_000_000 + UInt64(attoseconds / 1_000_000_000)
        _ = box.pulse.wait(beyond: 0, untilMonotonic: Clock.monotonicNanoseconds() + nanoseconds)
        return box.value.withLock { $0 }
    }
}
