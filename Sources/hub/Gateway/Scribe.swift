import Diagnostics
import Synchronization
import System

/// A thread that writes down what has changed, so that nobody who changes it waits for a disk. In: that there is something
/// new. Out: a call for each time, and one at the end.
final class Scribe: Sendable {
    private let name: String
    private let pulse = Pulse()
    private let isEnding = Atomic<Bool>(false)
    private let thread = Mutex<BackgroundThread?>(nil)

    init(_ name: String) { self.name = name }

    func start(_ write: @escaping @Sendable () -> Void) throws(SystemError) {
        let writing = LogScope.carried { [self] in
            var seen: UInt64 = 0
            while !isEnding.load(ordering: .acquiring) {
                seen = pulse.wait(beyond: seen, untilMonotonic: .max)
                write()
            }
            write()
        }
        let started = try BackgroundThread(name, writing)
        thread.withLock { $0 = started }
    }

    /// There is something to be written.
    func wake() { pulse.beat() }

    /// What is known then is written down.
    func stop() {
        isEnding.store(true, ordering: .releasing)
        pulse.beat()
        thread.withLock { $0.take() }?.join()
    }
}
