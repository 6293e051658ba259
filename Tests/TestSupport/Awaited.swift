import Synchronization
import System

/// A value that another thread gives.
public final class Awaited<Value: Sendable>: Sendable {
    private let value = Mutex<Value?>(nil)
    private let pulse = Pulse()

    public init() {}

    public func set(_ value: Value) {
        self.value.withLock { $0 = value }
        pulse.beat()
    }

    /// Nil when nobody gives one for three minutes.
    public func wait() -> Value? {
        _ = pulse.wait(beyond: 0, untilMonotonic: Clock.monotonicNanoseconds() + 180_000_000_000)
        return value.withLock { $0 }
    }
}

/// Asks again and again, for what comes about by itself; false when it has not within three, which only a machine that stands still
/// takes.
public func eventually(_ holds: () throws -> Bool) rethrows -> Bool {
    for _ in 0..<18_000 {
        if try holds() { return true }
        BackgroundThread.rest(nanoseconds: 10_000_000)
    }
    return false
}
