import Diagnostics
import Synchronization
import System

/// Thread that writes changed state, so that other threads do not wait for a disk. The thread calls `write` after each
/// wake-up, again after a while if that failed, and once at the end.
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

    /// Starts the thread. `write` returns false if it failed.
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

    /// Tells the thread that there is something to write.
    func wake() { pulse.beat() }

    /// Stops the thread after a last write.
    func stop() {
        isEnding.store(true, ordering: .releasing)
        pulse.beat()
        thread.withLock { $0.take() }?.join()
    }
}
