import Diagnostics
import Postgres
import System

/// Worker that answers questions on a thread of its own. Workers differ in how they answer; the loop in which the
/// thread sleeps, wakes and ends is common to all. Only its thread uses a worker.
public protocol AskingWorker<Line>: AnyObject {
    associatedtype Line: WaitingLine

    var inbox: Inbox<Line> { get }
    var lane: Line.Lane { get }
    /// Prepares the worker for sleep. Returns the monotonic time in nanoseconds at which the thread wakes even without
    /// a job.
    func prepare() -> UInt64
    /// Answers the given jobs or keeps them for later. The array is empty if the thread woke at the time that `prepare`
    /// returned.
    func work(_ jobs: [Line.Job])
    /// Gives up all kept jobs, because the inbox is closed.
    func end()
}

extension AskingWorker {
    public func prepare() -> UInt64 { .max }
    public func end() {}

    /// Takes jobs from the inbox and works on them until the inbox is closed.
    public func run() {
        var seen: UInt64 = 0
        while !inbox.isEnding {
            let jobs = inbox.take(lane, until: prepare(), seen: &seen)
            if jobs.isEmpty, inbox.isEnding { break }
            work(jobs)
            if !jobs.isEmpty { inbox.finished(jobs, lane) }
        }
        end()
        assert(inbox.isEnding, "a thread ends with its inbox")
    }
}

extension AskingWorker where Line.Lane == OnlyLane {
    public var lane: OnlyLane { OnlyLane() }
}

/// Worker that uses a session with PostgreSQL. It connects when it first needs the session, and reconnects after losing
/// it. If that fails, it waits before the next attempt.
public protocol ConnectedWorker<Line>: AskingWorker {
    associatedtype Session

    var link: Link<Session> { get set }
    var troubles: OutageReporter { get }
    /// Version of the database's definitions on which a session's plans depend; nil if its plans depend on none.
    var definitions: DefinitionsVersion? { get }
    /// True if the worker connects before it receives a question.
    var connectsUnasked: Bool { get }
    /// Monotonic time in nanoseconds at which a worker that has a session wakes even without a question.
    var nextWake: UInt64 { get }
    /// Opens a session. Returns nil if the database is reachable but cannot be used. The implementation has then logged
    /// the reason and set the next attempt in `link`.
    func connect() throws(PostgresError) -> Session?
    /// Reacts to a failure to open a session, for example by failing the waiting questions. The worker calls it when no
    /// session is possible for a while.
    func couldNotAsk(_ error: PostgresError)
}

extension ConnectedWorker {
    public var definitions: DefinitionsVersion? { nil }
    public var connectsUnasked: Bool { false }
    public var nextWake: UInt64 { .max }
    public func couldNotAsk(_ error: PostgresError) {}

    public func prepare() -> UInt64 {
        link.dropIfIdle(at: Clock.monotonicNanoseconds())
        if connectsUnasked, session() == nil { return link.nextTry(at: Clock.monotonicNanoseconds()) }
        return link.session == nil ? .max : min(link.idleEnd, nextWake)
    }

    public func end() { link.drop() }

    /// Returns the current session, or opens one. Nil if no session is possible now.
    public func session() -> Session? {
        link.dropIfOutdated()
        if let session = link.session { return session }
        while !inbox.isEnding, link.mayTry(at: Clock.monotonicNanoseconds()) {
            let definitions = definitions?.current
            do throws(PostgresError) {
                guard let made = try connect() else { return nil }
                assert(link.session == nil, "a session is made where there is none")
                link.opened(made, for: definitions, at: Clock.monotonicNanoseconds())
                return made
            } catch {
                lost(error)
            }
        }
        return nil
    }

    /// Sleeps until the next attempt to open a session. Workers that keep their jobs call it.
    public func waitForDatabase() {
        let now = Clock.monotonicNanoseconds()
        let next = min(link.nextTry(at: now), now + Limits.recoveryInterval.wholeNanoseconds)
        inbox.interrupt.sleep(milliseconds: next > now ? Int((next - now) / 1_000_000) + 1 : 1)
    }

    /// Handles the loss of a session, or a failed attempt to open one. While quick retries are left, the worker only
    /// sleeps briefly. Otherwise it reports the error, and the link waits before the next attempt.
    public func lost(_ error: PostgresError) {
        if inbox.isEnding { return link.drop() }
        guard let delay = link.failed(at: Clock.monotonicNanoseconds()) else {
            inbox.interrupt.sleep(milliseconds: Limits.visibilityRetryMilliseconds)
            return
        }
        troubles.report(error, delay, at: Clock.monotonicNanoseconds())
        couldNotAsk(error)
        assert(link.session == nil, "what is lost is not asked")
    }

    /// Records that PostgreSQL answered, so that the next failure counts as a new one.
    public func answered() {
        link.answered()
        troubles.isOver()
    }
}

/// Threads that answer the questions of one inbox.
public final class AskingThreads<Line: WaitingLine>: Sendable {
    public let inbox: Inbox<Line>
    private let threads: [BackgroundThread]

    /// Starts the threads. Each worker is created on its own thread.
    public init(
        _ inbox: Inbox<Line>, _ workers: [(name: String, make: @Sendable () -> any AskingWorker<Line>)]
    ) throws(SystemError) {
        precondition(!workers.isEmpty, "somebody answers")
        self.inbox = inbox
        var threads: [BackgroundThread] = []
        for (name, make) in workers { threads.append(try BackgroundThread(name, LogScope.carried { make().run() })) }
        self.threads = threads
    }

    /// Closes the inbox and gives up the waiting jobs. Running questions end soon. Any thread may call this if it
    /// shares descriptors with the thread that started these threads.
    public func end() {
        inbox.interrupt.ring()
        for job in inbox.close() { job.giveUp() }
    }

    /// Ends the threads and waits for them. The owner calls this once, on a thread that shares descriptors with the
    /// thread that started these threads.
    public func stop() {
        end()
        for thread in threads { thread.join() }
    }
}
