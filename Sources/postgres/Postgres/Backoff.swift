import Diagnostics
import Synchronization
import System

/// One database, as those see it who have to connect to it: who was without it and reaches it tells the others, who need
/// not wait any longer then.
///
/// Of all who are kept from it by the same, one says so.
public final class Reachability: Sendable {
    private let recoveries = Atomic<UInt64>(0)
    /// What was said of it since it was reached last, and when, on the monotonic clock.
    private let outages = Mutex<[String: UInt64]>([:])

    public init() {}

    /// How often it was reached by somebody who had failed.
    var count: UInt64 { recoveries.load(ordering: .acquiring) }

    func reached() {
        outages.withLock { $0 = [:] }
        recoveries.add(1, ordering: .acquiringAndReleasing)
    }

    /// Whether it is to be said that somebody is kept from it by this; it counts as said then. Nil where it was reached.
    public func isNews(_ error: PostgresError, at now: UInt64) -> Bool? {
        guard let outage = error.outage else { return nil }
        return outages.withLock { said in
            if let before = said[outage], now - min(now, before) < Limits.troubleReminderInterval.wholeNanoseconds {
                return false
            }
            // Words of libpq and of servers name addresses, which may be many.
            if said.count >= Limits.maximumOutages { said = [:] }
            said[outage] = now
            return true
        }
    }
}

/// Waits that double from short to long, with a little chance so that many hubs do not knock at once.
public struct Backoff {
    private let reachability: Reachability
    private var current = Limits.reconnectBackoffInitial
    /// The recoveries that were known at the last failure.
    private var known: UInt64 = 0
    private var hasFailed = false

    public init(_ reachability: Reachability = Reachability()) { self.reachability = reachability }

    /// The database is there: who waits for it hears so.
    public mutating func reached() {
        guard hasFailed else { return }
        hasFailed = false
        reachability.reached()
    }

    /// It is there, and the next wait is short again.
    public mutating func reset() {
        reached()
        current = Limits.reconnectBackoffInitial
    }

    /// After a failure: so long nothing is tried, unless it `isCutShort`.
    public mutating func next() -> Duration {
        if isCutShort { current = Limits.reconnectBackoffInitial }
        hasFailed = true
        known = reachability.count
        let delay = current * Double.random(in: 0.8...1.2)
        current = min(current * 2, Limits.reconnectBackoffMaximum)
        return min(delay, Limits.reconnectBackoffMaximum)
    }

    /// Somebody else has reached the database since the last failure.
    public var isCutShort: Bool { hasFailed && reachability.count != known }

    /// Lets the time pass that `next` said; less where it is cut short, or `interrupt` or `call` rings.
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

    /// How long to sleep before looking again; nil when the wait is over.
    public func left(until end: UInt64) -> Duration? {
        let now = Clock.monotonicNanoseconds()
        guard now < end, !isCutShort else { return nil }
        let all = Duration.nanoseconds(end - now)
        // Who did not fail waits for nobody, and is not to be woken all the time for that.
        return (hasFailed ? min(all, Limits.recoveryInterval) : all) + .milliseconds(1)
    }
}
