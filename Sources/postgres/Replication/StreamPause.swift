import Synchronization
import System

/// Pause of reading from the database, requested by an operator. Any thread may set it; the stream's thread checks it.
///
/// A pause always has an end, because the server keeps all WAL meanwhile.
public final class StreamPause: Sendable {
    /// End of the pause, on the monotonic clock; zero if there is no pause.
    private let end = Atomic<UInt64>(0)

    public init() {}

    public func begin(until end: UInt64) { self.end.store(end, ordering: .relaxed) }

    /// Ends the pause; returns false if there was none.
    public func finish() -> Bool { end.exchange(0, ordering: .relaxed) > Clock.monotonicNanoseconds() }

    /// True during a pause. The stream checks it at each message, so without a pause no clock is read.
    var isOn: Bool {
        let end = end.load(ordering: .relaxed)
        return end > 0 && end > Clock.monotonicNanoseconds()
    }
}
