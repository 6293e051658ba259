import Diagnostics
import Synchronization
import System

/// Shared state of one database for all threads that connect to it. When a thread reaches the database after a failure,
/// the waits of the other threads end.
///
/// If several threads fail for the same reason, only one reports it.
public final class Reachability: Sendable {
    private let recoveries = Atomic<UInt64>(0)
    /// Outages reported since the database was last reached, with the monotonic time of each report.
    private let outages = Mutex<[String: UInt64]>([:])

    public init() {}

    /// Number of times that a thread reached the database after a failure.
    var count: UInt64 { recoveries.load(ordering: .acquiring) }

    func reached() {
        outages.withLock { $0 = [:] }
        recoveries.add(1, ordering: .acquiringAndReleasing)
    }

    /// True if this outage is to be reported; the call records it as reported. Nil if the database was reached.
    public func isNews(_ error: PostgresError, at now: UInt64) -> Bool? {
        guard let outage = error.outage else { return nil }
        return outages.withLock { said in
            if let before = said[outage], now - min(now, before) < Limits.troubleReminderInterval.wholeNanoseconds {
                return false
            }
            // Messages of libpq and of servers contain addresses, so there may be many different ones.
            if said.count >= Limits.maximumOutages { said = [:] }
            said[outage] = now
            return true
        }
    }
}

/// Exponential back-off between a short and a long wait, with a random part so that many hubs do not connect at once.
public struct Backoff {
    private let reachability: Reachability
    private var current = Limits.reconnectBackoffInitial
    /// Number of recoveries at the last failure.
    private var known: UInt64 = 0
    private var hasFailed = false

    public init(_ reachability: Reachability = Reachability()) { self.reachability = reachability }

    /// Records that the database was reached, which ends the waits of other threads.
    public mutating func reached() {
        guard hasFailed else { return }
        hasFailed = false
        reachability.reached()
    }

    /// Records that the database was reached, and makes the next wait short again.
    public mutating func reset() {
        reached()
        current = Limits.reconnectBackoffInitial
    }

    /// Returns the wait after a failure. The thread tries again only after that time, or when `isCutShort`.
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

    /// Waits for the time that `next` returned; ends early if it is cut short, or if `interrupt` or `call` rings.
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

    /// Returns the time to sleep before the next check; nil if the wait is over.
    public func left(until end: UInt64) -> Duration? {
        let now = Clock.monotonicNanoseconds()
        guard now < end, !isCutShort else { return nil }
        let all = Duration.nanoseconds(end - now)
        // A thread without a failure waits for no recovery, so it need not wake up for one.
        return (hasFailed ? min(all, Limits.recoveryInterval) : all) + .milliseconds(1)
    }
}
