import Bytes
import Catalog
import Change
import Diagnostics
import Policy
import Postgres
import Synchronization
import System

/// Whether one row is a match, where only PostgreSQL can tell.
public struct JudgedQuestion: Sendable, Hashable {
    public let question: Question
    /// The row's texts in the order of the question's slots; nil is NULL.
    public let values: [String?]

    public init(_ question: Question, values: [String?]) {
        precondition(values.count == question.slots.count, "a question is asked with a value for each of its slots")
        self.question = question
        self.values = values
    }

    /// Nil where one of the columns is absent: PostgreSQL knows no more of the row than we do.
    public init?(_ question: Question, row values: [ColumnText]) {
        var texts: [String?] = []
        for value in values {
            switch value {
            case .text(let text): texts.append(String(decoding: text, as: UTF8.self))
            case .null: texts.append(nil)
            case .absent: return nil
            }
        }
        self.init(question, values: texts)
    }

    /// Of the row's texts: what it takes to send it.
    var byteCount: Int { values.reduce(0) { $0 + ($1?.utf8.count ?? 0) } }
}

/// Has PostgreSQL decide on rows that the hub cannot decide on, many in one round trip.
///
/// In: questions from any thread. Out: for each, in order, whether the row matches, or nil where that could not be found
/// out: an error, a timeout, a database that is away, too many questions. Nil is never a match, and the client is told.
/// It owns a thread and a connection that can only read.
public final class Judge: Sendable {
    private let exchange: JudgeExchange
    private let thread: BackgroundThread

    public init(_ target: ConnectionTarget, _ reachability: Reachability = Reachability()) throws {
        let exchange = try JudgeExchange()
        self.exchange = exchange
        thread = try BackgroundThread("judge") { JudgeWorker(target, exchange, reachability).run() }
    }

    /// `then` is called on the judge's thread, or at once on the caller's when too many wait; it must not wait for
    /// anything.
    public func ask(_ batch: [JudgedQuestion], then: @escaping @Sendable ([Bool?]) -> Void) {
        exchange.add(JudgeExchange.Job(work: .questions(batch, then)))
    }

    /// The values in the types that their columns have now; absent where that could not be found out.
    public func convert(_ values: [ValueConversion], then: @escaping @Sendable ([ColumnText]) -> Void) {
        exchange.add(JudgeExchange.Job(work: .conversions(values, then)))
    }

    /// Ends the thread and what it asks just now; what waits is answered with nil. Once, by the owner, on a thread with
    /// the descriptors of the one that started it.
    public func stop() {
        exchange.interrupt.ring()
        exchange.endWait()
        thread.join()
    }
}

/// What the judge's thread and those who ask it share.
final class JudgeExchange: Sendable {
    struct Job: Sendable {
        enum Work {
            case questions([JudgedQuestion], @Sendable ([Bool?]) -> Void)
            case conversions([ValueConversion], @Sendable ([ColumnText]) -> Void)
        }

        let work: Work
        private let since = Clock.monotonicNanoseconds()

        init(work: Work) { self.work = work }

        /// While the database is away.
        func mayWait(_ now: UInt64) -> Bool {
            guard case .conversions = work else { return false }
            return now < since + Limits.conversionPatience.wholeNanoseconds
        }

        var isConversion: Bool { if case .conversions = work { true } else { false } }

        var count: Int {
            switch work {
            case .questions(let questions, _): questions.count
            case .conversions(let values, _): values.count
            }
        }

        var byteCount: Int {
            switch work {
            case .questions(let questions, _): questions.reduce(0) { $0 + $1.byteCount }
            case .conversions(let values, _): values.reduce(0) { $0 + $1.text.count }
            }
        }

        /// Nothing could be found out.
        func giveUp() {
            Metrics.shared.judgeFailures.add(count)
            switch work {
            case .questions(let questions, let then): then(questions.map { _ in nil })
            case .conversions(let values, let then): then(values.map { _ in .absent })
            }
        }
    }

    private struct Inbox {
        var jobs: [Job] = []
        var questionCount = 0
        var byteCount = 0
        var isClosed = false
    }

    let interrupt: Wake
    private let inbox = Mutex(Inbox())
    /// Not a descriptor: those who ask may have other descriptors than the judge's thread.
    private let pulse = Pulse()

    init() throws(SystemError) { interrupt = try Wake() }

    func add(_ job: Job) {
        let (count, byteCount) = (job.count, job.byteCount)
        let isTaken = inbox.withLock { inbox in
            let hasRoom =
                inbox.questionCount + count <= Limits.maximumWaitingQuestions
                && inbox.byteCount + byteCount <= Limits.maximumWaitingQuestionBytes
            // Conversions are bounded by themselves, one batch of a loop: others' questions do not make rows lose columns.
            guard !inbox.isClosed, hasRoom || job.isConversion else { return false }
            inbox.questionCount += count
            inbox.byteCount += byteCount
            inbox.jobs.append(job)
            return true
        }
        if isTaken { return pulse.beat() }
        job.giveUp()
    }

    func take(until deadline: UInt64, seen: inout UInt64) -> [Job] {
        seen = pulse.wait(beyond: seen, untilMonotonic: deadline)
        return takeNow()
    }

    private func takeNow() -> [Job] {
        inbox.withLock { inbox in
            let jobs = inbox.jobs
            inbox.jobs = []
            inbox.questionCount = 0
            inbox.byteCount = 0
            return jobs
        }
    }

    func endWait() { pulse.beat() }

    /// Nothing is taken any more; what was taken last.
    func close() -> [Job] {
        inbox.withLock { $0.isClosed = true }
        return takeNow()
    }
}
