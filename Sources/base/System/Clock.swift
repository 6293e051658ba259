import CLinux
import Glibc

/// Clocks of the kernel. The values are plain numbers.
public enum Clock {
    /// Returns monotonic time in nanoseconds, which never goes backward. For measuring durations and for waiting.
    @inline(never)
    public static func monotonicNanoseconds() -> UInt64 { read(CLOCK_MONOTONIC) }

    /// Returns the microseconds since 1970, UTC. For display and for comparison with commit times.
    @inline(never)
    public static func unixMicroseconds() -> Int64 { Int64(read(CLOCK_REALTIME) / 1000) }

    /// Returns the processor time in nanoseconds that all threads of this process have used.
    public static func processNanoseconds() -> UInt64 { read(CLOCK_PROCESS_CPUTIME_ID) }

    /// Returns the processor time in nanoseconds that the calling thread has used.
    public static func threadNanoseconds() -> UInt64 { read(CLOCK_THREAD_CPUTIME_ID) }

    /// Identity of the machine's start, at which the monotonic clock begins. 0 if the kernel does not provide it.
    public static let boot: UInt64 = {
        let digits = (ProcFile.text("/proc/sys/kernel/random/boot_id") ?? "").filter { $0 != "-" }
        return UInt64(digits.prefix(16), radix: 16) ?? 0
    }()

    private static func read(_ clock: clockid_t) -> UInt64 {
        var time = timespec()
        // SAFETY: the kernel fills the local structure; these clocks always exist on Linux.
        let answer = unsafe clock_gettime(clock, &time)
        precondition(answer == 0, "the kernel has no such clock")
        return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
    }
}

/// Source of time: the kernel's clocks, or a clock that the caller controls.
public protocol TimeSource: Sendable {
    /// Returns monotonic time in nanoseconds; see `Clock.monotonicNanoseconds`.
    func monotonicNanoseconds() -> UInt64
    /// Returns microseconds since 1970, UTC; see `Clock.unixMicroseconds`.
    func unixMicroseconds() -> Int64
    /// Identity of the monotonic clock's start; 0 if it is unknown, see `Clock.boot`.
    var boot: UInt64 { get }
}

/// Time source that reads the kernel's clocks.
public struct KernelTime: TimeSource {
    public init() {}

    public func monotonicNanoseconds() -> UInt64 { Clock.monotonicNanoseconds() }
    public func unixMicroseconds() -> Int64 { Clock.unixMicroseconds() }
    public var boot: UInt64 { Clock.boot }
}

extension TimeSource {
    public var boot: UInt64 { 0 }
    /// Whole seconds since 1970, the unit of time claims in tokens.
    public var unixSeconds: Int64 { unixMicroseconds() / 1_000_000 }
}
