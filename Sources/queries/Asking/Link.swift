import Diagnostics
import Postgres

/// One thread's way to PostgreSQL: the session it has, or from when on it tries to make another.
///
/// It reads no clock: every moment, on the monotonic clock, is said to it.
public struct Link<Session> {
    /// How long to wait after each failure.
    public enum Retry {
        /// Longer each time, and no longer once somebody else has reached the database.
        case backingOff(Backoff)
        case every(Duration)
    }

    public private(set) var session: Session?
    private var retry: Retry
    /// So often after an answer a lost session is made again at once; also before there was any.
    private let quickRetries: Int
    private var quickRetriesLeft: Int
    /// A session that was not used for so long is dropped.
    private let idleLimit: Duration?
    private let connected: Gauge
    private var retryAt: UInt64 = 0
    private var usedAt: UInt64 = 0

    /// - Parameter connected: counts sessions.
    public init(_ retry: Retry, quickRetries: Int = 0, idleLimit: Duration? = nil, connected: Gauge) {
        precondition(quickRetries >= 0, "nothing is tried less than never")
        self.retry = retry
        self.quickRetries = quickRetries
        quickRetriesLeft = quickRetries
        self.idleLimit = idleLimit
        self.connected = connected
    }

    // MARK: A session's life

    public mutating func opened(_ session: Session, at now: UInt64) {
        precondition(self.session == nil, "a thread has one session")
        self.session = session
        usedAt = now
        connected.add(1)
        reached()
    }

    /// The database is there: who waits for it hears so.
    private mutating func reached() { change { $0.reached() } }

    public mutating func used(at now: UInt64) {
        precondition(session != nil, "what is used is there")
        usedAt = now
    }

    /// What was asked was answered: the next failure is the first one again.
    public mutating func answered() {
        quickRetriesLeft = quickRetries
        change { $0.reset() }
    }

    public mutating func drop() {
        if session != nil { connected.add(-1) }
        session = nil
    }

    /// The session is lost, or could not be made. How long nothing is tried; nil where it is tried again at once.
    public mutating func failed(at now: UInt64) -> Duration? {
        drop()
        if quickRetriesLeft > 0 {
            quickRetriesLeft -= 1
            return nil
        }
        let delay = nextDelay()
        rest(delay, at: now)
        assert(!mayTry(at: now) || delay == .zero || isCutShort, "after a failure nothing is tried for a while")
        return delay
    }

    /// The database was reached and is of no use now.
    public mutating func refused(for delay: Duration, at now: UInt64) {
        reached()
        rest(delay, at: now)
    }

    /// There is no session, and none is made for a while.
    public mutating func rest(_ delay: Duration, at now: UInt64) {
        drop()
        retryAt = now + delay.wholeNanoseconds
        assert(session == nil && retryAt >= now, "who rests has no session")
    }

    // MARK: When

    public func mayTry(at now: UInt64) -> Bool { session == nil && (now >= retryAt || isCutShort) }

    /// When to look again whether a session can be made: nobody says when another has reached the database.
    public func nextTry(at now: UInt64) -> UInt64 {
        guard case .backingOff = retry, now < retryAt else { return retryAt }
        return min(retryAt, now + Limits.recoveryInterval.wholeNanoseconds)
    }

    /// How long nobody has used the session.
    public func idleTime(at now: UInt64) -> Duration { .nanoseconds(now - min(now, usedAt)) }

    /// When the session is dropped, unless it is used again.
    public var idleEnd: UInt64 {
        guard session != nil, let idleLimit else { return .max }
        return usedAt + idleLimit.wholeNanoseconds
    }

    public mutating func dropIfIdle(at now: UInt64) {
        if now >= idleEnd { drop() }
        assert(now < idleEnd, "a session that is kept is not idle")
    }

    private var isCutShort: Bool {
        if case .backingOff(let backoff) = retry { backoff.isCutShort } else { false }
    }

    private mutating func change(_ body: (inout Backoff) -> Void) {
        guard case .backingOff(var backoff) = retry else { return }
        body(&backoff)
        retry = .backingOff(backoff)
    }

    private mutating func nextDelay() -> Duration {
        if case .every(let delay) = retry { return delay }
        var delay = Duration.zero
        change { delay = $0.next() }
        return delay
    }
}
