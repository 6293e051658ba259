import Asking
import Bytes
import Catalog
import Change
import Diagnostics
import Policy
import Postgres
import System

/// Question whether one row matches a filter, if only PostgreSQL can tell.
public struct JudgedQuestion: Sendable, Hashable {
    public let question: Question
    /// Texts of the row in the order of the question's slots; nil means NULL.
    public let values: [String?]

    public init(_ question: Question, values: [String?]) {
        precondition(values.count == question.slots.count, "a question is asked with a value for each of its slots")
        self.question = question
        self.values = values
    }

    /// Creates the question; nil if one of the columns is absent, because PostgreSQL knows no more of the row than the
    /// hub.
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

    /// Size of the row's texts in bytes.
    var byteCount: Int { values.reduce(0) { $0 + ($1?.utf8.count ?? 0) } }
}

/// Evaluator that asks PostgreSQL about rows that the hub cannot decide, many in one round trip.
///
/// Input: questions from any thread. Output: for each, in order, whether the row matches. Nil means unknown: an error,
/// a timeout, a database that is away, or too many questions. Nil never counts as a match, and the hub tells the
/// client. The evaluator owns a thread and a read-only connection.
public final class FilterEvaluator: Sendable {
    private let threads: AskingThreads<PlainLine<JudgeJob>>
    private let metrics: ProjectMetrics

    public init(
        _ target: ConnectionTarget, _ reachability: Reachability = Reachability(),
        _ metrics: ProjectMetrics = ProjectMetrics()
    ) throws(SystemError) {
        self.metrics = metrics
        // Each job has at least one question.
        let room = InboxLoad(
            jobs: Limits.maximumWaitingQuestions, parts: Limits.maximumWaitingQuestions,
            bytes: Limits.maximumWaitingQuestionBytes)
        let inbox = try Inbox<PlainLine<JudgeJob>>(holding: room)
        threads = try AskingThreads(inbox, [("judge", { FilterWorker(target, inbox, reachability, metrics) })])
    }

    /// Asks the questions. `then` runs on the judge's thread, or at once on the caller's if too many questions wait. It
    /// must not block.
    public func ask(_ batch: [JudgedQuestion], then: @escaping @Sendable ([Bool?]) -> Void) {
        let reply = Reply(in: .judging, unanswered: batch.map { _ in Bool?.none }, then: then)
        threads.inbox.ask([JudgeJob(.questions(batch, reply), metrics)])
    }

    /// Converts values to the present types of their columns; absent if the conversion could not be done.
    public func convert(_ values: [ValueConversion], then: @escaping @Sendable ([ColumnText]) -> Void) {
        let reply = Reply(in: .judging, unanswered: values.map { _ in ColumnText.absent }, then: then)
        threads.inbox.ask([JudgeJob(.conversions(values, reply), metrics)])
    }

    /// Stops the thread and its running query. Waiting questions are answered with nil. The owner calls this once, on a
    /// thread that shares descriptors with the thread that created the evaluator.
    public func stop() { threads.stop() }
}

/// Questions, or values to convert, of one caller.
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

    /// True for conversions, which bypass the inbox's limits, because each loop has only one batch of them. Other
    /// questions must not cost rows their columns.
    var isBoundedByAsker: Bool { if case .conversions = work { true } else { false } }

    /// True if the job may still wait while the database is away. A question about a match can be answered as unknown.
    /// A conversion delays the log, because the row would otherwise be sent without the column, so it may wait longer.
    func mayWait(_ now: UInt64) -> Bool {
        let patience = isBoundedByAsker ? Limits.conversionPatience : Limits.outagePatience
        return now < since + patience.wholeNanoseconds
    }

    /// Answers the job as unknown.
    func giveUp() {
        metrics.judgeFailures.add(load.parts)
        switch work {
        case .questions(_, let reply): reply.giveUp()
        case .conversions(_, let reply): reply.giveUp()
        }
    }
}
