import Synchronization
import System

/// That nothing is read from the database for a while, because an operator wants so. Told from any thread; the stream's own asks.
///
/// It has an end: the server keeps all WAL meanwhile.
public final class StreamPause: Sendable {
    /// On the monotonic clock; zero where there is none.
    private let end = Atomic<UInt64>(0)

    public init() {}

    public func begin(until end: UInt64) { self.end.store(end, ordering: .relaxed) }

    /// False where there was none.
    public func finish() -> Bool { end.exchange(0, ordering: .relaxed) > Clock.monotonicNanoseconds() }

    /// Asked with each message: where there is none it looks at no clock.
    var isOn: Bool {
        let end = end.load(ordering: .relaxed)
        return end > 0 && end > Clock.monotonicNanoseconds()
    }
}
