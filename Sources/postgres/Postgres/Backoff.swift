import Diagnostics
import Synchronization
import System

/// Shared knowledge of all threads that connect to one database. When one thread reaches the database after a failure,
/// the other threads try again immediately.
///
/// If several threads fail for the same reason, only one of them reports it.
public final class Reachability: Sendable {
    private let recoveries = Atomic<UInt64>(0)
    /// Outages that were reported since a thread last reached the database, with the monotonic time of each report in
    /// nanoseconds.
    private let outages = Mutex<[String: UInt64]>([:])

    public init() {}

    /// Number of times that a thread has reached the database after a failure.
    var count: UInt64 { recoveries.load(ordering: .acquiring) }

    func reached() {
        outages.withLock { $0 = [:] }
        recoveries.add(1, ordering: .acquiringAndReleasing)
    }

    /// True if the caller should report this outage; the call then records the report. Nil if the error is not an
    /// outage, because the database was reached.
    public func isNews(_ error: PostgresError, at now: UInt64) -> Bool? {
        guard let outage = error.outage else { return nil }
        return outages.withLock { said in
            if let before = said[outage], now - min(now, before) < Limits.troubleReminderInterval.wholeNanoseconds {
                return false
            }
            // Messages of libpq and of servers contain addresses, so the number of different messages is not limited.
            if said.count >= Limits.maximumOutages { said = [:] }
            said[outage] = now
            return true
        }
    }
}

/// Exponential back-off: each failure doubles the wait, up to a maximum. A random part prevents many hubs from
/// connecting at the same time.
public struct Backoff {
    private let reachability: Reachability
    private var current = Limits.reconnectBackoffInitial
    /// Value of `Reachability.count` at the last failure.
    private var known: UInt64 = 0
    private var hasFailed = false

    public init(_ reachability: Reachability = Reachability()) { self.reachability = reachability }

    /// Records that this thread reached the database. This ends the waits of other threads.
    public mutating func reached() {
        guard hasFailed else { return }
        hasFailed = false
        reachability.reached()
    }

    /// Records that this thread reached the database, and makes its next wait short again.
    public mutating func reset() {
        reached()
        current = Limits.reconnectBackoffInitial
    }

    /// Returns the duration to wait after a failure. The thread should try again after that, or earlier if
    /// `isCutShort`.
    public mutating func next() -> Duration {
        if isCutShort { current = Limits.reconnectBackoffInitial }
        hasFailed = true
        known = reachability.count
        let delay = current * Double.random(in: 0.8...1.2)
        current = min(current * 2, Limits.reconnectBackoffMaximum)
        return min(delay, Limits.reconnectBackoffMaximum)
    }

    /// True if another thread has reached the database since the last failure.
    public var isCutShort: Bool { hasFailed && reachability.count != known }

    /// Waits for the duration that `next` returned. Ends early if another thread reaches the database, or if
    /// `interrupt` or `call` is signalled.
    public func wait(_ delay: Duration, _ interrupt: Wake, orCalled call: Wake? = nil) {
        let end = Clock.monotonicNanoseconds() + delay.wholeNanoseconds
        while !interrupt.isRung, let left = left(until: end) {
            guard let call else {
                interrupt.sleep(milliseconds: left.wholeMilliseconds)
                continue
            }
            let limit = Int32(clamping: left.wholeMilliseconds)
            if Poll.wait(socket: call.descriptor, interrupt: interrupt, timeoutMilliseconds: limit).socket { return }
        }
    }

    /// Returns the time to sleep before the caller checks again if another thread has reached the database; nil if the
    /// wait is over. `end` is a monotonic time in nanoseconds.
    public func left(until end: UInt64) -> Duration? {
        let now = Clock.monotonicNanoseconds()
        guard now < end, !isCutShort else { return nil }
        let all = Duration.nanoseconds(end - now)
        // A thread that has not failed does not wait for another thread, so it need not check for one.
        return (hasFailed ? min(all, Limits.recoveryInterval) : all) + .milliseconds(1)
    }
}
