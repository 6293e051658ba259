import Synchronization
import System

/// Value that another thread provides.
public final class Awaited<Value: Sendable>: Sendable {
    private let value = Mutex<Value?>(nil)
    private let pulse = Pulse()

    public init() {}

    public func set(_ value: Value) {
        self.value.withLock { $0 = value }
        pulse.beat()
    }

    /// Waits for the value. Returns nil if no thread provides one within three minutes.
    public func wait() -> Value? {
        _ = pulse.wait(beyond: 0, untilMonotonic: Clock.monotonicNanoseconds() + 180_000_000_000)
        return value.withLock { $0 }
    }
}

/// Evaluates `holds` repeatedly until it is true. Returns false after three minutes, which only happens on a stalled
/// machine.
public func eventually(_ holds: () throws -> Bool) rethrows -> Bool {
    for _ in 0..<18_000 {
        if try holds() { return true }
        BackgroundThread.rest(nanoseconds: 10_000_000)
    }
    return false
}
