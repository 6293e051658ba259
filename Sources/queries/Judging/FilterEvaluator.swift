import Asking
import Bytes
import Catalog
import Change
import Diagnostics
import Policy
import Postgres
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
public final class FilterEvaluator: Sendable {
    private let threads: AskingThreads<PlainLine<JudgeJob>>
    private let metrics: ProjectMetrics

    public init(
        _ target: ConnectionTarget, _ reachability: Reachability = Reachability(),
        _ metrics: ProjectMetrics = ProjectMetrics()
    ) throws(SystemError) {
        self.metrics = metrics
        // Each job asks at least one question.
        let room = InboxLoad(
            jobs: Limits.maximumWaitingQuestions, parts: Limits.maximumWaitingQuestions,
            bytes: Limits.maximumWaitingQuestionBytes)
        let inbox = try Inbox<PlainLine<JudgeJob>>(holding: room)
        threads = try AskingThreads(inbox, [("judge", { FilterWorker(target, inbox, reachability, metrics) })])
    }

    /// `then` is called on the judge's thread, or at once on the caller's when too many wait; it must not wait for
    /// anything.
    public func ask(_ batch: [JudgedQuestion], then: @escaping @Sendable ([Bool?]) -> Void) {
        let reply = Reply(in: .judging, unanswered: batch.map { _ in Bool?.none }, then: then)
        threads.inbox.ask([JudgeJob(.questions(batch, reply), metrics)])
    }

    /// The values in the types that their columns have now; absent where that could not be found out.
    public func convert(_ values: [ValueConversion], then: @escaping @Sendable ([ColumnText]) -> Void) {
        let reply = Reply(in: .judging, unanswered: values.map { _ in ColumnText.absent }, then: then)
        threads.inbox.ask([JudgeJob(.conversions(values, reply), metrics)])
    }

    /// Ends the thread and what it asks just now; what waits is answered with nil. Once, by the owner, on a thread with
    /// the descriptors of the one that started it.
    public func stop() { threads.stop() }
}

/// Questions, or values to convert, that somebody waits for.
struct JudgeJob: AskedJob {
    enum Work {
        case questions([JudgedQuestion], Reply<[Bool?]>)
        case conversions([ValueConversion], Reply<[ColumnText]>)
    }

    let work: Work
    let load: InboxLoad
    private let metrics: ProjectMetrics
    private let since = Clock.monotonicNanoseconds()

    init(_ work: Work, _ metrics: ProjectMetrics) {
        self.work = work
        self.metrics = metrics
        load =
            switch work {
            case .questions(let questions, _):
                InboxLoad(jobs: 1, parts: questions.count, bytes: questions.reduce(0) { $0 + $1.byteCount })
            case .conversions(let values, _):
                InboxLoad(jobs: 1, parts: values.count, bytes: values.reduce(0) { $0 + $1.text.count })
            }
    }

    /// Conversions are one batch of a loop: others' questions do not make rows lose columns.
    var isBoundedByAsker: Bool { if case .conversions = work { true } else { false } }

    /// While the database is away. Who asks whether a row matches is told in the end that nobody knows; who asks what a value
    /// is holds the log for it, as without it the row would go out without the column. That is worth more patience.
    func mayWait(_ now: UInt64) -> Bool {
        let patience = isBoundedByAsker ? Limits.conversionPatience : Limits.outagePatience
        return now < since + patience.wholeNanoseconds
    }

    /// Nothing could be found out.
    func giveUp() {
        metrics.judgeFailures.add(load.parts)
        switch work {
        case .questions(_, let reply): reply.giveUp()
        case .conversions(_, let reply): reply.giveUp()
        }
    }
}
