import Diagnostics
import Postgres
import System

/// What one thread does with what is asked of it. When it sleeps, wakes and ends is the same for all.
///
/// It lives on its thread alone.
public protocol AskingWorker<Line>: AnyObject {
    associatedtype Line: WaitingLine

    var inbox: Inbox<Line> { get }
    var lane: Line.Lane { get }
    /// What is done before each sleep; until when it may last, on the monotonic clock.
    func prepare() -> UInt64
    /// Answers, or keeps for later, what was taken; nothing was taken where it is merely time.
    func work(_ jobs: [Line.Job])
    /// Nothing is asked any more: what was kept is given up.
    func end()
}

extension AskingWorker {
    public func prepare() -> UInt64 { .max }
    public func end() {}

    /// Until the inbox is ending.
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

/// A worker that has a session with PostgreSQL: made when it is needed, made again when it is lost, after a while where
/// it cannot be had.
public protocol ConnectedWorker<Line>: AskingWorker {
    associatedtype Session

    var link: Link<Session> { get set }
    var troubles: TroubleTeller { get }
    /// It makes its session before anything is asked.
    var connectsUnasked: Bool { get }
    /// When it is to be woken though nothing is asked, while it has a session.
    var nextWake: UInt64 { get }
    /// Nil where the database is there and of no use, which was said and the link told.
    func connect() throws(PostgresError) -> Session?
    /// There is no session now, for a while.
    func couldNotAsk(_ error: PostgresError)
}

extension ConnectedWorker {
    public var connectsUnasked: Bool { false }
    public var nextWake: UInt64 { .max }
    public func couldNotAsk(_ error: PostgresError) {}

    public func prepare() -> UInt64 {
        link.dropIfIdle(at: Clock.monotonicNanoseconds())
        if connectsUnasked, session() == nil { return link.nextTry(at: Clock.monotonicNanoseconds()) }
        return link.session == nil ? .max : min(link.idleEnd, nextWake)
    }

    public func end() { link.drop() }

    /// The session that the thread has, or makes; nil where nothing can be asked now.
    public func session() -> Session? {
        if let session = link.session { return session }
        while !inbox.isEnding, link.mayTry(at: Clock.monotonicNanoseconds()) {
            do throws(PostgresError) {
                guard let made = try connect() else { return nil }
                assert(link.session == nil, "a session is made where there is none")
                link.opened(made, at: Clock.monotonicNanoseconds())
                return made
            } catch {
                lost(error)
            }
        }
        return nil
    }

    /// Until a session may be tried for again; for who has been asked already and keeps it.
    public func waitForDatabase() {
        let now = Clock.monotonicNanoseconds()
        let next = min(link.nextTry(at: now), now + Limits.recoveryInterval.wholeNanoseconds)
        inbox.interrupt.sleep(milliseconds: next > now ? Int((next - now) / 1_000_000) + 1 : 1)
    }

    /// Neither is anything said nor a session made for a while where that may be tried again at once.
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

/// The threads that answer what one inbox takes.
public final class AskingThreads<Line: WaitingLine>: Sendable {
    public let inbox: Inbox<Line>
    private let threads: [BackgroundThread]

    /// Each worker is made on its thread.
    public init(
        _ inbox: Inbox<Line>, _ workers: [(name: String, make: @Sendable () -> any AskingWorker<Line>)]
    ) throws(SystemError) {
        precondition(!workers.isEmpty, "somebody answers")
        self.inbox = inbox
        var threads: [BackgroundThread] = []
        for (name, make) in workers { threads.append(try BackgroundThread(name, LogScope.carried { make().run() })) }
        self.threads = threads
    }

    /// Nothing is asked any more: what waits is given up, and what is asked just now ends soon. From any thread with the
    /// descriptors of the one that started it.
    public func end() {
        inbox.interrupt.ring()
        for job in inbox.close() { job.giveUp() }
    }

    /// Ends the threads. Once, by the owner, on a thread with the descriptors of the one that started it.
    public func stop() {
        end()
        for thread in threads { thread.join() }
    }
}
