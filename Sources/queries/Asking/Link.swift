import Diagnostics
import Postgres

/// Connection of one thread to PostgreSQL: its session, or the time of the next try to make one.
///
/// A link reads no clock. The caller passes every time, on the monotonic clock.
public struct Link<Session> {
    /// Delay after each failure.
    public enum Retry {
        /// A delay that grows, and ends as soon as any other connection has reached the database.
        case backingOff(Backoff)
        case every(Duration)
    }

    public private(set) var session: Session?
    /// Version of the database's definitions from before the session was opened; nil if the session keeps nothing that
    /// depends on them.
    public private(set) var definitions: DefinitionsVersion.Reading?
    private var retry: Retry
    /// Number of immediate retries after a lost session, counted since the last answer or since the start.
    private let quickRetries: Int
    private var quickRetriesLeft: Int
    /// Time after which an unused session is dropped.
    private let idleLimit: Duration?
    private let connected: Gauge
    private var retryAt: UInt64 = 0
    private var usedAt: UInt64 = 0
    private var openedAt: UInt64 = 0

    /// - Parameter connected: gauge of open sessions.
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

    /// Tells all who wait for the database that it can be reached.
    private mutating func reached() { change { $0.reached() } }

    public mutating func used(at now: UInt64) {
        precondition(session != nil, "what is used is there")
        usedAt = now
    }

    /// Records an answer, so that the next failure counts as the first one.
    public mutating func answered() {
        quickRetriesLeft = quickRetries
        change { $0.reset() }
    }

    public mutating func drop() {
        if session != nil { connected.add(-1) }
        session = nil
    }

    /// Drops a session that was lost or could not be made. Returns the delay before the next try; nil to try at once.
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

    /// Records that the database was reached but is unusable for now.
    public mutating func refused(for delay: Duration, at now: UInt64) {
        reached()
        rest(delay, at: now)
    }

    /// Drops the session and makes none during the delay.
    public mutating func rest(_ delay: Duration, at now: UInt64) {
        drop()
        retryAt = now + delay.wholeNanoseconds
        assert(session == nil && retryAt >= now, "who rests has no session")
    }

    /// Drops a session that may answer by former definitions.
    public mutating func dropIfOutdated() {
        if let definitions, !definitions.isCurrent { drop() }
    }

    // MARK: Times

    public func mayTry(at now: UInt64) -> Bool { session == nil && (now >= retryAt || isCutShort) }

    /// Returns the time of the next check whether a session can be made. The link polls, because it gets no notice when
    /// another connection has reached the database.
    public func nextTry(at now: UInt64) -> UInt64 {
        guard case .backingOff = retry, now < retryAt else { return retryAt }
        return min(retryAt, now + Limits.recoveryInterval.wholeNanoseconds)
    }

    /// Returns the time for which the session was not used.
    public func idleTime(at now: UInt64) -> Duration { .nanoseconds(now - min(now, usedAt)) }

    /// True if the session was opened so long before this time.
    public func isOlder(than age: Duration, at now: UInt64) -> Bool {
        session != nil && openedAt + age.wholeNanoseconds < now
    }

    /// Time at which the session is dropped unless it is used again.
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
