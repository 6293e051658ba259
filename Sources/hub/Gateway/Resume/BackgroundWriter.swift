import Diagnostics
import Synchronization
import System

/// Thread that writes changed state to the disk, so that no other thread waits for the disk. It calls `write` after
/// each `wake`, again after a pause if writing failed, and once when it stops.
final class BackgroundWriter: Sendable {
    private let name: String
    private let retry: Duration
    private let pulse = Pulse()
    private let isEnding = Atomic<Bool>(false)
    private let thread = Mutex<BackgroundThread?>(nil)

    init(_ name: String, retry: Duration = Limits.recordRetryInterval) {
        self.name = name
        self.retry = retry
    }

    /// Starts the thread. `write` must return false if it failed.
    func start(_ write: @escaping @Sendable () -> Bool) throws(SystemError) {
        let writing = LogScope.carried { [self] in
            var seen: UInt64 = 0
            var isWritten = true
            while !isEnding.load(ordering: .acquiring) {
                let again = isWritten ? UInt64.max : Clock.monotonicNanoseconds() + retry.wholeNanoseconds
                seen = pulse.wait(beyond: seen, untilMonotonic: again)
                isWritten = write()
            }
            _ = write()
        }
        let started = try BackgroundThread(name, writing)
        thread.withLock { running in
            let isFirst = running == nil
            assert(isFirst, "a writer has one thread")
            running = started
        }
    }

    /// Makes the thread call `write`.
    func wake() { pulse.beat() }

    /// Stops the thread after a last write.
    func stop() {
        isEnding.store(true, ordering: .releasing)
        pulse.beat()
        thread.withLock { $0.take() }?.join()
    }
}
