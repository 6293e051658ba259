import CLinux
import Glibc

/// The kernel's clocks, as plain numbers.
public enum Clock {
    /// Nanoseconds that only ever go forward; for measuring and waiting.
    @inline(never)
    public static func monotonicNanoseconds() -> UInt64 { read(CLOCK_MONOTONIC) }

    /// Microseconds since 1970, UTC; for people and for comparing with commit times.
    @inline(never)
    public static func unixMicroseconds() -> Int64 { Int64(read(CLOCK_REALTIME) / 1000) }

    /// Nanoseconds of processor time this process has used, all threads.
    public static func processNanoseconds() -> UInt64 { read(CLOCK_PROCESS_CPUTIME_ID) }

    /// Nanoseconds of processor time this thread has used.
    public static func threadNanoseconds() -> UInt64 { read(CLOCK_THREAD_CPUTIME_ID) }

    private static func read(_ clock: clockid_t) -> UInt64 {
        var time = timespec()
        // SAFETY: the kernel fills the local structure; these clocks always exist on Linux.
        let answer = unsafe clock_gettime(clock, &time)
        precondition(answer == 0, "the kernel has no such clock")
        return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
    }
}

/// Where the time comes from: the kernel's clocks, or somebody who decides what time it is.
public protocol TimeSource: Sendable {
    /// As `Clock.monotonicNanoseconds`.
    func monotonicNanoseconds() -> UInt64
    /// As `Clock.unixMicroseconds`.
    func unixMicroseconds() -> Int64
}

/// The kernel's clocks.
public struct KernelTime: TimeSource {
    public init() {}

    public func monotonicNanoseconds() -> UInt64 { Clock.monotonicNanoseconds() }
    public func unixMicroseconds() -> Int64 { Clock.unixMicroseconds() }
}

extension TimeSource {
    /// Whole seconds since 1970, in which tokens count.
    public var unixSeconds: Int64 { unixMicroseconds() / 1_000_000 }
}
