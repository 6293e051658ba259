import Asking
import Catalog
import Change
import Diagnostics
import Policy
import Postgres
import Replication
import System

/// Thread that asks PostgreSQL whether rows match filters: connects, sends questions and passes on the answers.
final class FilterWorker: ConnectedWorker {
    let inbox: Inbox<PlainLine<JudgeJob>>
    var link: Link<Connection>
    let troubles: OutageReporter
    private let target: ConnectionTarget
    private let metrics: ProjectMetrics
    /// Jobs taken from the inbox and not answered yet.
    private var jobs: [JudgeJob] = []
    /// Number of connections lost while the first job was being asked. The count is limited because the job itself may
    /// crash the server.
    private var losses = 0
    /// Maximum number of times that the thread repeats a job after losing the connection.
    private static let attempts = 3
    /// Names of the connection's prepared statements, by their SQL.
    private var names: [String: String] = [:]
    private var prepared: Set<String> = []
    /// Questions that timed out, and until when the hub does not ask them again.
    private var penalties = Penalties<Question>(limit: Limits.maximumPenalties, each: Limits.questionPenalty)

    init(
        _ target: ConnectionTarget, _ inbox: Inbox<PlainLine<JudgeJob>>, _ reachability: Reachability,
        _ metrics: ProjectMetrics
    ) {
        self.target = target
        self.inbox = inbox
        self.metrics = metrics
        troubles = OutageReporter(
            "cannot ask PostgreSQL about rows; trying again",
            again: "still cannot ask PostgreSQL about rows; trying again", reachability)
        link = Link(
            .backingOff(Backoff(reachability)), quickRetries: FilterWorker.attempts,
            connected: metrics.judgeConnected)
    }

    let connectsUnasked = true
    var definitions: DefinitionsVersion? { target.definitions }
    var nextWake: UInt64 { jobs.isEmpty ? .max : 0 }

    func connect() throws(PostgresError) -> Connection? {
        names = [:]
        prepared = []
        return try Connection(
            target, applicationName: "tidewire judge", timeoutSeconds: Limits.connectTimeout.wholeSeconds,
            // The statements are few and repeat with other values, so one plan serves all.
            settings: OwnSession.settings(statementTimeout: Limits.questionTimeout.wholeMilliseconds)
                + ["plan_cache_mode=force_generic_plan", "jit=off"],
            interrupt: inbox.interrupt)
    }

    func work(_ new: [JudgeJob]) {
        jobs += new
        while let job = jobs.first, !inbox.isEnding {
            guard let connection = session() else {
                giveUpImpatient()
                // While the database is unreachable, the inbox accepts jobs up to its limits.
                if !jobs.isEmpty { waitForDatabase() }
                continue
            }
            do throws(PostgresError) {
                let reply = try answered(job.work, connection)
                jobs.removeFirst()
                losses = 0
                answered()
                reply()
            } catch {
                lost(error)
                lostWhileAsking(job)
            }
        }
    }

    private func lostWhileAsking(_ job: JudgeJob) {
        losses += 1
        guard losses > FilterWorker.attempts, !inbox.isEnding else { return }
        losses = 0
        jobs.removeFirst()
        job.giveUp()
    }

    private func giveUpImpatient() {
        let now = Clock.monotonicNanoseconds()
        let impatient = jobs.filter { !$0.mayWait(now) }
        jobs.removeAll { !$0.mayWait(now) }
        if !impatient.isEmpty { losses = 0 }
        for job in impatient { job.giveUp() }
    }

    func end() {
        link.drop()
        for job in jobs { job.giveUp() }
        jobs = []
    }

    /// Asks PostgreSQL all that the job contains. Returns a closure that passes the answers to the caller.
    private func answered(_ work: JudgeJob.Work, _ connection: Connection) throws(PostgresError) -> () -> Void {
        switch work {
        case .questions(let questions, let reply):
            let answers = try answers(questions, connection)
            return { reply.give(answers) }
        case .conversions(let values, let reply):
            let converted = try convert(values, connection)
            return { reply.give(converted) }
        }
    }

    // MARK: Questions

    private func answers(
        _ questions: [JudgedQuestion], _ connection: Connection
    ) throws(PostgresError) -> [Bool?] {
        // Many subscribers may ask the same question about a row.
        var different = Array(Set(questions))[...]
        var known: [JudgedQuestion: Bool] = [:]
        while !different.isEmpty {
            let next = different.fitting(Limits.questionBatch, within: Limits.questionBatchBytes, \.byteCount)
            try ask(next, connection, &known)
            different = different.dropFirst(next.count)
        }
        assert(known.count <= Set(questions).count, "what is known was asked")
        let answers = questions.map { known[$0] }
        metrics.judgeQuestions.add(questions.count)
        metrics.judgeFailures.add(answers.count { $0 == nil })
        return answers
    }

    private func ask(
        _ questions: ArraySlice<JudgedQuestion>, _ connection: Connection, _ known: inout [JudgedQuestion: Bool]
    ) throws(PostgresError) {
        let began = Clock.monotonicNanoseconds()
        assert(questions.count <= Limits.questionBatch, "so many questions are kept prepared")
        let questions = questions.filter { !penalties.contains($0.question, at: began) }
        try makeRoom(for: questions.map(\.question.sql), connection)
        let answers = try connection.pipeline(
            questions.map(statement), prepared: &prepared,
            timeoutMilliseconds: Limits.answerTimeout.wholeMilliseconds, interrupt: inbox.interrupt)
        let now = Clock.monotonicNanoseconds()
        metrics.judgeRoundTripSeconds.record(.nanoseconds(now - began))
        for (question, answer) in try eachAnswered(questions, by: answers, in: .judging) {
            switch answer {
            case .success(let rows): known[question] = try Self.decision(rows)
            case .failure(let error): failed(question, error, now)
            }
        }
    }

    /// Returns true if PostgreSQL answered that the row matches. NULL is not a match.
    private static func decision(_ rows: Rows) throws(PostgresError) -> Bool {
        guard rows.values.count == 1, let row = rows.first, row.count == 1 else {
            throw .impossible("a question about a row is answered by one value", in: .judging)
        }
        return row.flag(0)
    }

    private func statement(_ asked: JudgedQuestion) -> PipelinedStatement {
        let name = names[asked.question.sql] ?? "q\(names.count)"
        names[asked.question.sql] = name
        return PipelinedStatement(
            "SELECT " + asked.question.sql, asked.values + asked.question.constants, preparedAs: name)
    }

    // MARK: Conversions

    private func convert(
        _ values: [ValueConversion], _ connection: Connection
    ) throws(PostgresError) -> [ColumnText] {
        var converted: [ColumnText] = []
        var left = values[...]
        while !left.isEmpty {
            let next = left.prefix(Limits.questionBatch)
            left = left.dropFirst(next.count)
            let answers = try answers(of: Array(next), connection)
            for (_, answer) in try eachAnswered(next, by: answers, in: .judging) {
                converted.append(try value(answer))
            }
        }
        assert(converted.count == values.count, "each value is converted, or absent")
        metrics.judgeQuestions.add(values.count)
        return converted
    }

    /// Converts the values. A conversion that PostgreSQL cancels by timeout is tried once more, because the server may
    /// have paused for a moment.
    private func answers(
        of values: [ValueConversion], _ connection: Connection
    ) throws(PostgresError) -> [Result<Rows, PostgresError>] {
        var answers = try ask(values, connection)
        let late = answers.indices.filter { answers[$0].failure?.sqlState == SQLState.queryCanceled }
        if late.isEmpty { return answers }
        let again = try ask(late.map { values[$0] }, connection)
        for (index, answer) in try eachAnswered(late, by: again, in: .judging) { answers[index] = answer }
        return answers
    }

    private func ask(
        _ values: [ValueConversion], _ connection: Connection
    ) throws(PostgresError) -> [Result<Rows, PostgresError>] {
        try makeRoom(for: values.map(\.sql), connection)
        return try connection.pipeline(
            values.map { value in
                let name = names[value.sql] ?? "q\(names.count)"
                names[value.sql] = name
                return PipelinedStatement(
                    "SELECT " + value.sql, [String(decoding: value.text, as: UTF8.self)], preparedAs: name)
            },
            prepared: &prepared, timeoutMilliseconds: Limits.answerTimeout.wholeMilliseconds,
            interrupt: inbox.interrupt)
    }

    private func value(_ answer: Result<Rows, PostgresError>) throws(PostgresError) -> ColumnText {
        // The server is shutting down or lacks resources. The value did not cause the error, so the job is repeated.
        if let error = answer.failure, let state = error.sqlState, SQLState.isPassing(state),
            state != SQLState.queryCanceled
        {
            throw error
        }
        guard case .success(let rows) = answer, let row = rows.first, row.count == 1 else {
            metrics.judgeFailures.add()
            return .absent
        }
        return row[0].map { .text(Array($0.utf8)) } ?? .null
    }

    /// Ensures that the connection can prepare the statements. If it would hold too many, drops all prepared ones
    /// first.
    private func makeRoom(for statements: [String], _ connection: Connection) throws(PostgresError) {
        let new = Set(statements).filter { self.names[$0] == nil }
        guard names.count + new.count > Limits.maximumPreparedQuestions, !names.isEmpty else { return }
        var none: Set<String> = []
        _ = try connection.pipeline(
            [PipelinedStatement("DEALLOCATE ALL")], prepared: &none,
            timeoutMilliseconds: Limits.answerTimeout.wholeMilliseconds, interrupt: inbox.interrupt)
        names = [:]
        prepared = []
        assert(new.count <= Limits.maximumPreparedQuestions, "a round trip's statements are kept prepared")
    }

    private func failed(_ asked: JudgedQuestion, _ error: PostgresError, _ now: UInt64) {
        // The log line omits the question and the row, because they may contain secrets.
        Log.shared.debug("PostgreSQL could not evaluate a filter for a row", [.sqlstate(error.sqlState ?? "")])
        if error.sqlState == SQLState.queryCanceled { penalties.add(asked.question, at: now) }
    }
}

extension Result {
    fileprivate var failure: Failure? { if case .failure(let error) = self { error } else { nil } }
}
