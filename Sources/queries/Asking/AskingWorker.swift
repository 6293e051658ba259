import Diagnostics
import Postgres
import System

/// Work of one thread that answers questions. The loop that sleeps, wakes and ends is the same for all workers.
///
/// A worker lives on its thread alone.
public protocol AskingWorker<Line>: AnyObject {
    associatedtype Line: WaitingLine

    var inbox: Inbox<Line> { get }
    var lane: Line.Lane { get }
    /// Prepares for a sleep. Returns the time on the monotonic clock until which the sleep may last.
    func prepare() -> UInt64
    /// Answers the given jobs or keeps them for later. The array is empty if only the time of `prepare` has come.
    func work(_ jobs: [Line.Job])
    /// Gives up all kept jobs, because no more questions come.
    func end()
}

extension AskingWorker {
    public func prepare() -> UInt64 { .max }
    public func end() {}

    /// Runs until the inbox ends.
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

/// Worker with a session with PostgreSQL. The worker connects when it needs a session and reconnects after a loss. If
/// that fails, it waits before it tries again.
public protocol ConnectedWorker<Line>: AskingWorker {
    associatedtype Session

    var link: Link<Session> { get set }
    var troubles: OutageReporter { get }
    /// Version of the definitions that a session's plans depend on; nil if they depend on none.
    var definitions: DefinitionsVersion? { get }
    /// True if the worker connects before the first question.
    var connectsUnasked: Bool { get }
    /// Time at which the worker wakes without a question, while it has a session.
    var nextWake: UInt64 { get }
    /// Makes a session. Returns nil if the database is reachable but unusable; the worker then has logged it and told
    /// the link.
    func connect() throws(PostgresError) -> Session?
    /// Called when a session cannot be had for a while.
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

    /// Returns the present session or makes one; nil if no question can be asked now.
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

    /// Sleeps until a session may be tried again, for workers that keep the jobs they took.
    public func waitForDatabase() {
        let now = Clock.monotonicNanoseconds()
        let next = min(link.nextTry(at: now), now + Limits.recoveryInterval.wholeNanoseconds)
        inbox.interrupt.sleep(milliseconds: next > now ? Int((next - now) / 1_000_000) + 1 : 1)
    }

    /// Handles a lost session. If a quick retry is allowed, the worker only sleeps briefly and reports nothing.
    /// Otherwise it reports the error and waits.
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

    public func answered() {
        link.answered()
        troubles.isOver()
    }
}

/// Threads that answer the questions of one inbox.
public final class AskingThreads<Line: WaitingLine>: Sendable {
    public let inbox: Inbox<Line>
    private let threads: [BackgroundThread]

    /// Starts the threads. Each worker is made on its own thread.
    public init(
        _ inbox: Inbox<Line>, _ workers: [(name: String, make: @Sendable () -> any AskingWorker<Line>)]
    ) throws(SystemError) {
        precondition(!workers.isEmpty, "somebody answers")
        self.inbox = inbox
        var threads: [BackgroundThread] = []
        for (name, make) in workers { threads.append(try BackgroundThread(name, LogScope.carried { make().run() })) }
        self.threads = threads
    }

    /// Ends asking: waiting jobs are given up, and running questions end soon. May be called from any thread with the
    /// descriptors of the thread that started these threads.
    public func end() {
        inbox.interrupt.ring()
        for job in inbox.close() { job.giveUp() }
    }

    /// Ends the threads. The owner calls it once, on a thread with the descriptors of the thread that started these
    /// threads.
    public func stop() {
        end()
        for thread in threads { thread.join() }
    }
}
