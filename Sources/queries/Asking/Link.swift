import Diagnostics
import Postgres

/// Connection of one thread to PostgreSQL: its session, or the time of the next attempt to open one.
///
/// A link reads no clock. The caller passes each time, as monotonic time in nanoseconds.
public struct Link<Session> {
    /// Rule for the delay after a failed attempt to open a session.
    public enum Retry {
        /// Growing delay. It ends early when another connection has reached the database.
        case backingOff(Backoff)
        case every(Duration)
    }

    public private(set) var session: Session?
    /// Version of the database's definitions when the session was opened; nil if the session keeps nothing that depends
    /// on them.
    public private(set) var definitions: DefinitionsVersion.Reading?
    private var retry: Retry
    /// Maximum number of immediate retries after a lost session. An answer resets the count.
    private let quickRetries: Int
    /// Number of immediate retries that are still allowed.
    private var quickRetriesLeft: Int
    /// Duration without use after which the session is closed; nil means never.
    private let idleLimit: Duration?
    /// Metric that counts open sessions.
    private let connected: Gauge
    /// Monotonic time in nanoseconds of the next attempt to open a session.
    private var retryAt: UInt64 = 0
    /// Monotonic time in nanoseconds at which the session was last used.
    private var usedAt: UInt64 = 0
    /// Monotonic time in nanoseconds at which the session was opened.
    private var openedAt: UInt64 = 0

    /// Creates a link without a session.
    ///
    /// - Parameter connected: the metric that counts open sessions.
    public init(_ retry: Retry, quickRetries: Int = 0, idleLimit: Duration? = nil, connected: Gauge) {
        precondition(quickRetries >= 0, "nothing is tried less than never")
        self.retry = retry
        self.quickRetries = quickRetries
        quickRetriesLeft = quickRetries
        self.idleLimit = idleLimit
        self.connected = connected
    }

    // MARK: Sessions

    public mutating func opened(
        _ session: Session, for definitions: DefinitionsVersion.Reading? = nil, at now: UInt64
    ) {
        precondition(self.session == nil, "a thread has one session")
        self.session = session
        self.definitions = definitions
        (openedAt, usedAt) = (now, now)
        connected.add(1)
        reached()
    }

    /// Tells all threads that wait for this database that it is reachable.
    private mutating func reached() { change { $0.reached() } }

    public mutating func used(at now: UInt64) {
        precondition(session != nil, "what is used is there")
        usedAt = now
    }

    /// Records that PostgreSQL answered, so that the next failure counts as the first one.
    public mutating func answered() {
        quickRetriesLeft = quickRetries
        change { $0.reset() }
    }

    public mutating func drop() {
        if session != nil { connected.add(-1) }
        session = nil
    }

    /// Drops the session after it was lost or could not be opened. Returns the delay before the next attempt; nil means
    /// that the caller may try again immediately.
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

    /// Records that the database is reachable but cannot be used, and delays the next attempt.
    public mutating func refused(for delay: Duration, at now: UInt64) {
        reached()
        rest(delay, at: now)
    }

    /// Drops the session and allows no new one during the delay.
    public mutating func rest(_ delay: Duration, at now: UInt64) {
        drop()
        retryAt = now + delay.wholeNanoseconds
        assert(session == nil && retryAt >= now, "who rests has no session")
    }

    /// Drops the session if definitions have changed since it was opened, because it may answer by the former ones.
    public mutating func dropIfOutdated() {
        if let definitions, !definitions.isCurrent { drop() }
    }

    // MARK: Times

    public func mayTry(at now: UInt64) -> Bool { session == nil && (now >= retryAt || isCutShort) }

    /// Returns the time at which the caller checks again if a session can be opened. The link must be polled, because
    /// it is not notified when another connection reaches the database.
    public func nextTry(at now: UInt64) -> UInt64 {
        guard case .backingOff = retry, now < retryAt else { return retryAt }
        return min(retryAt, now + Limits.recoveryInterval.wholeNanoseconds)
    }

    /// Returns the duration since the session was last used.
    public func idleTime(at now: UInt64) -> Duration { .nanoseconds(now - min(now, usedAt)) }

    /// True if at `now` the session has been open for longer than `age`.
    public func isOlder(than age: Duration, at now: UInt64) -> Bool {
        session != nil && openedAt + age.wholeNanoseconds < now
    }

    /// Time at which the session is closed unless it is used again.
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
