import Asking
import Bytes
import Catalog
import Change
import Diagnostics
import Policy
import Postgres
import System

/// Question to PostgreSQL whether one row matches a filter that the hub cannot decide itself.
public struct JudgedQuestion: Sendable, Hashable {
    public let question: Question
    /// Texts of the row's columns, in the order of the question's column slots; nil means NULL.
    public let values: [String?]

    public init(_ question: Question, values: [String?]) {
        precondition(values.count == question.slots.count, "a question is asked with a value for each of its slots")
        self.question = question
        self.values = values
    }

    /// Creates the question. Returns nil if a column that it needs is absent from the row: PostgreSQL is sent only
    /// values that the hub has.
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

/// Evaluator that asks PostgreSQL whether rows match filters that the hub cannot decide itself. It sends many questions
/// in one round trip.
///
/// Any thread may ask. Each answer says if the row matches; nil means unknown: an error, a timeout, an unreachable
/// database, or too many waiting questions. Nil never counts as a match, and the hub tells the client that a change may
/// be missing. The evaluator owns a thread and a read-only connection.
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

    /// Asks the questions. `then` must not block. It runs on the evaluator's thread, or immediately on the caller's
    /// thread if too many questions are waiting.
    public func ask(_ batch: [JudgedQuestion], then: @escaping @Sendable ([Bool?]) -> Void) {
        let reply = Reply(in: .judging, unanswered: batch.map { _ in Bool?.none }, then: then)
        threads.inbox.ask([JudgeJob(.questions(batch, reply), metrics)])
    }

    /// Converts the text of each value to the type that its column has now. `then` receives `absent` for a value that
    /// could not be converted.
    public func convert(_ values: [ValueConversion], then: @escaping @Sendable ([ColumnText]) -> Void) {
        let reply = Reply(in: .judging, unanswered: values.map { _ in ColumnText.absent }, then: then)
        threads.inbox.ask([JudgeJob(.conversions(values, reply), metrics)])
    }

    /// Stops the thread and its running query. Waiting questions are answered with nil. The owner calls this once, on a
    /// thread that shares descriptors with the thread that created the evaluator.
    public func stop() { threads.stop() }
}

/// Questions of one caller, or values that one caller wants converted.
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

    /// True for conversions. They bypass the inbox's limits, because each socket loop has only one batch of them at a
    /// time. If waiting questions used up the limits, rows would be sent without the converted columns.
    var isBoundedByAsker: Bool { if case .conversions = work { true } else { false } }

    /// True if the job may wait longer while the database is unreachable. A question is answered as unknown sooner than
    /// a conversion: a conversion that gets no answer makes the hub send the row without the column. `now` is monotonic
    /// time in nanoseconds.
    func mayWait(_ now: UInt64) -> Bool {
        let patience = isBoundedByAsker ? Limits.conversionPatience : Limits.outagePatience
        return now < since + patience.wholeNanoseconds
    }

    /// Answers everything in the job as unknown.
    func giveUp() {
        metrics.judgeFailures.add(load.parts)
        switch work {
        case .questions(_, let reply): reply.giveUp()
        case .conversions(_, let reply): reply.giveUp()
        }
    }
}
