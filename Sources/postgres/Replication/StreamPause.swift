import Synchronization
import System

/// Pause in reading from the database, which an operator requests. Any thread may set it; the stream's thread checks
/// it.
///
/// A pause always has an end, because PostgreSQL retains all WAL during the pause.
public final class StreamPause: Sendable {
    /// End of the pause as a monotonic time in nanoseconds; zero if there is no pause.
    private let end = Atomic<UInt64>(0)

    public init() {}

    public func begin(until end: UInt64) { self.end.store(end, ordering: .relaxed) }

    /// Ends the pause. Returns false if there was none.
    public func finish() -> Bool { end.exchange(0, ordering: .relaxed) > Clock.monotonicNanoseconds() }

    /// True during a pause. The stream checks this at each message, so the clock is read only if a pause is set.
    public var isOn: Bool {
        let end = end.load(ordering: .relaxed)
        return end > 0 && end > Clock.monotonicNanoseconds()
    }
}
