import CLinux
import Glibc

/// Counter that only increases. Threads can wait until it increases.
@safe
public final class Pulse: @unchecked Sendable {
    // The mutex and the condition protect themselves. `count` is accessed only while `mutex` is held.
    private let mutex: UnsafeMutablePointer<pthread_mutex_t>
    private let condition: UnsafeMutablePointer<pthread_cond_t>
    private var count: UInt64 = 0

    public init() {
        // SAFETY: allocated once, initialised before use, destroyed and freed in `deinit`.
        unsafe mutex = .allocate(capacity: 1)
        unsafe condition = .allocate(capacity: 1)
        unsafe mutex.initialize(to: pthread_mutex_t())
        unsafe condition.initialize(to: pthread_cond_t())
        _ = unsafe pthread_mutex_init(mutex, nil)
        var attributes = pthread_condattr_t()
        // The condition uses the monotonic clock, which cannot be set back.
        _ = unsafe pthread_condattr_init(&attributes)
        _ = unsafe pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
        _ = unsafe pthread_cond_init(condition, &attributes)
        _ = unsafe pthread_condattr_destroy(&attributes)
    }

    deinit {
        // SAFETY: nobody can wait on an object without references.
        _ = unsafe pthread_cond_destroy(condition)
        _ = unsafe pthread_mutex_destroy(mutex)
        unsafe condition.deallocate()
        unsafe mutex.deallocate()
    }

    public var value: UInt64 {
        // SAFETY: the mutex lives as long as this object.
        _ = unsafe pthread_mutex_lock(mutex)
        defer { _ = unsafe pthread_mutex_unlock(mutex) }
        return count
    }

    public func beat() {
        // SAFETY: both live as long as this object.
        _ = unsafe pthread_mutex_lock(mutex)
        count += 1
        _ = unsafe pthread_cond_broadcast(condition)
        _ = unsafe pthread_mutex_unlock(mutex)
    }

    /// Waits until the count exceeds `seen`, or until the deadline, a monotonic time in nanoseconds. Returns the count
    /// after the wait.
    public func wait(beyond seen: UInt64, untilMonotonic deadline: UInt64) -> UInt64 {
        var until = timespec(tv_sec: Int(deadline / 1_000_000_000), tv_nsec: Int(deadline % 1_000_000_000))
        // SAFETY: both live as long as this object; the wait gives the mutex back locked.
        _ = unsafe pthread_mutex_lock(mutex)
        defer { _ = unsafe pthread_mutex_unlock(mutex) }
        while count <= seen {
            if unsafe pthread_cond_timedwait(condition, mutex, &until) != 0 { break }
        }
        return count
    }
}
