import CLinux
import Glibc
import Synchronization

/// Signals that a thread receives by waiting for them. No handler runs at an arbitrary place in the program.
public enum Signals {
    /// Blocks the signals for this thread and for threads that it starts later. Call this first in the program.
    public static func block(_ numbers: [Int32]) {
        var set = signalSet(numbers)
        // SAFETY: the set is a local.
        unsafe pthread_sigmask(SIG_BLOCK, &set, nil)
    }

    /// Runs `body` with SIGPIPE blocked. A write to a closed pipe then returns an error. The signal would end the
    /// program.
    static func withoutBrokenPipe<Answer>(_ body: () -> Answer) -> Answer {
        var set = signalSet([SIGPIPE])
        var before = sigset_t()
        var pending = sigset_t()
        // SAFETY: the sets are locals; so below.
        unsafe sigpending(&pending)
        unsafe pthread_sigmask(SIG_BLOCK, &set, &before)
        let answer = body()
        if unsafe sigismember(&pending, SIGPIPE) == 0 {
            var none = timespec()
            while unsafe sigtimedwait(&set, nil, &none) < 0, errno == EINTR {}
        }
        unsafe pthread_sigmask(SIG_SETMASK, &before, nil)
        return answer
    }

    /// Waits for one of the signals. Returns nil if none arrives within the time.
    public static func wait(for numbers: [Int32], milliseconds: Int) -> Int32? {
        var set = signalSet(numbers)
        var time = timespec(tv_sec: milliseconds / 1000, tv_nsec: milliseconds % 1000 * 1_000_000)
        // SAFETY: set and time are locals; we do not ask who sent it.
        let number = unsafe sigtimedwait(&set, nil, &time)
        return number > 0 ? number : nil
    }

    /// Changes the effect of Ctrl-C and SIGTERM: the first one only sets `wasInterrupted`, so that the program can
    /// clean up; a second one ends the program. This is for commands with threads of libraries, where `block` cannot
    /// reach every thread.
    public static func noteInterruptions() {
        isNoted.store(false, ordering: .relaxed)
        for number in [SIGINT, SIGTERM] {
            var action = sigaction()
            // SAFETY: the handler does nothing but a store to an atomic that is there already.
            unsafe action.__sigaction_handler.sa_handler = { _ in Signals.isNoted.store(true, ordering: .relaxed) }
            action.sa_flags = Int32(bitPattern: UInt32(SA_RESETHAND))
            // SAFETY: the action is a local.
            unsafe sigaction(number, &action, nil)
        }
    }

    /// True if Ctrl-C or SIGTERM has arrived since the call of `noteInterruptions`.
    public static var wasInterrupted: Bool { isNoted.load(ordering: .relaxed) }

    private static let isNoted = Atomic(false)

    private static func signalSet(_ numbers: [Int32]) -> sigset_t {
        var set = sigset_t()
        // SAFETY: the set is a local.
        unsafe sigemptyset(&set)
        for number in numbers { unsafe sigaddset(&set, number) }
        return set
    }
}
