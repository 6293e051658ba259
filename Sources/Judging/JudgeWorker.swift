import Asking
import Catalog
import Change
import Diagnostics
import Policy
import Postgres
import Replication
import System

/// The judge's thread: connects, asks, answers.
final class JudgeWorker {
    private let target: ConnectionTarget
    private let exchange: JudgeExchange
    private var backoff: Backoff
    private var lastTrouble = LastTrouble()
    private var seen: UInt64 = 0
    /// Taken and not yet answered.
    private var jobs: [JudgeExchange.Job] = []
    /// So often more a lost connection is made again at once, and what was asked then is asked again; also before there was
    /// any answer.
    private var attemptsLeft = JudgeWorker.attempts
    private static let attempts = 3
    /// The names under which the connection knows statements, by their text.
    private var names: [String: String] = [:]
    private var prepared: Set<String> = []
    /// Questions that took too long, and when they may be asked again.
    private var penalties: [Question: UInt64] = [:]

    init(_ target: ConnectionTarget, _ exchange: JudgeExchange, _ reachability: Reachability) {
        self.target = target
        self.exchange = exchange
        backoff = Backoff(reachability)
    }

    func run() {
        while !exchange.interrupt.isRung {
            do throws(PostgresError) {
                try session()
            } catch {
                ended(error)
            }
        }
        Metrics.shared.judgeConnected.set(Int64(0))
        jobs += exchange.close()
        giveUp()
    }

    // MARK: A connection's life

    private func session() throws(PostgresError) {
        let connection = try Connection(
            target, applicationName: "tidewire judge", timeoutSeconds: Limits.connectTimeout.wholeSeconds,
            // The same few statements with other values: a plan made once serves all.
            settings: OwnSession.settings(statementTimeout: Limits.questionTimeout.wholeMilliseconds)
                + ["plan_cache_mode=force_generic_plan", "jit=off"],
            interrupt: exchange.interrupt)
        names = [:]
        prepared = []
        Metrics.shared.judgeConnected.set(Int64(1))
        backoff.reached()
        while !exchange.interrupt.isRung {
            if jobs.isEmpty { jobs = exchange.take(until: .max, seen: &seen) }
            while let job = jobs.first, !exchange.interrupt.isRung {
                switch job.work {
                case .questions(let questions, let then):
                    let answers = try answers(questions, connection)
                    jobs.removeFirst()
                    answered()
                    then(answers)
                case .conversions(let values, let then):
                    let converted = try convert(values, connection)
                    jobs.removeFirst()
                    answered()
                    then(converted)
                }
            }
        }
    }

    private func answered() {
        backoff.reset()
        lastTrouble = LastTrouble()
        attemptsLeft = JudgeWorker.attempts
    }

    private func ended(_ error: PostgresError) {
        if exchange.interrupt.isRung { return }
        Metrics.shared.judgeConnected.set(Int64(0))
        if attemptsLeft > 0 {
            attemptsLeft -= 1
            _ = exchange.interrupt.sleep(milliseconds: Limits.visibilityRetryMilliseconds)
            return
        }
        let delay = backoff.next()
        let fields = { LastTrouble.fields(error) + [.delay(delay)] }
        if lastTrouble.isNews(error.message, at: Clock.monotonicNanoseconds()) {
            Log.shared.warning("PostgreSQL cannot be asked about rows; trying again", fields())
        } else {
            Log.shared.debug("PostgreSQL still cannot be asked about rows; trying again", fields())
        }
        giveUp()
        let end = Clock.monotonicNanoseconds() + delay.wholeNanoseconds
        while !exchange.interrupt.isRung, let left = backoff.left(until: end) {
            jobs += exchange.take(until: Clock.monotonicNanoseconds() + left.wholeNanoseconds, seen: &seen)
            giveUp()
        }
    }

    /// Who asks whether a row matches is told that nobody knows; who asks what a value is holds the log for it, as without it
    /// the row would go out without the column. That is worth more patience.
    private func giveUp() {
        let now = Clock.monotonicNanoseconds()
        let jobs = self.jobs
        self.jobs = jobs.filter { !exchange.interrupt.isRung && $0.mayWait(now) }
        for job in jobs where exchange.interrupt.isRung || !job.mayWait(now) { job.giveUp() }
    }

    // MARK: Asking

    private func answers(
        _ questions: [JudgedQuestion], _ connection: Connection
    ) throws(PostgresError) -> [Bool?] {
        // Many subscribers may ask the same of a row.
        var different = Array(Set(questions))[...]
        var known: [JudgedQuestion: Bool] = [:]
        while !different.isEmpty {
            let next = JudgeWorker.roundTrip(of: different)
            try ask(next, connection, &known)
            different = different.dropFirst(next.count)
        }
        let answers = questions.map { known[$0] }
        Metrics.shared.judgeQuestions.add(questions.count)
        Metrics.shared.judgeFailures.add(answers.count { $0 == nil })
        return answers
    }

    /// The first of them, as many as are sent together.
    private static func roundTrip(of questions: ArraySlice<JudgedQuestion>) -> ArraySlice<JudgedQuestion> {
        var bytes = 0
        let count = questions.prefix(Limits.questionBatch).prefix { question in
            bytes += question.byteCount
            return bytes <= Limits.questionBatchBytes
        }.count
        return questions.prefix(max(1, count))
    }

    private func ask(
        _ questions: ArraySlice<JudgedQuestion>, _ connection: Connection, _ known: inout [JudgedQuestion: Bool]
    ) throws(PostgresError) {
        let began = Clock.monotonicNanoseconds()
        let questions = questions.filter { !isPenalised($0.question, began) }
        try makeRoom(for: questions.map(\.question.sql), connection)
        let answers = try connection.pipeline(
            questions.map(statement), prepared: &prepared,
            timeoutMilliseconds: Limits.answerTimeout.wholeMilliseconds, interrupt: exchange.interrupt)
        let now = Clock.monotonicNanoseconds()
        Metrics.shared.judgeRoundTripSeconds.record(.nanoseconds(now - began))
        for (question, answer) in zip(questions, answers) {
            switch answer {
            // NULL is no match.
            case .success(let rows): known[question] = rows.first.map { $0.flag(0) }
            case .failure(let error): failed(question, error, now)
            }
        }
    }

    private func statement(_ asked: JudgedQuestion) -> PipelinedStatement {
        let name = names[asked.question.sql] ?? "q\(names.count)"
        names[asked.question.sql] = name
        return PipelinedStatement(
            "SELECT " + asked.question.sql, asked.values + asked.question.constants, preparedAs: name)
    }

    // MARK: Converting

    private func convert(
        _ values: [ValueConversion], _ connection: Connection
    ) throws(PostgresError) -> [ColumnText] {
        var converted: [ColumnText] = []
        var left = values[...]
        while !left.isEmpty {
            let next = left.prefix(Limits.questionBatch)
            left = left.dropFirst(next.count)
            for answer in try answers(of: Array(next), connection) { converted.append(try Self.value(answer)) }
        }
        Metrics.shared.judgeQuestions.add(values.count)
        return converted
    }

    /// A server may stand still for a moment: what was cancelled is asked once more. A value that takes as long again cannot
    /// be had.
    private func answers(
        of values: [ValueConversion], _ connection: Connection
    ) throws(PostgresError) -> [Result<Rows, PostgresError>] {
        var answers = try ask(values, connection)
        let late = answers.indices.filter { answers[$0].failure?.sqlState == SQLState.queryCanceled }
        if late.isEmpty { return answers }
        for (index, answer) in zip(late, try ask(late.map { values[$0] }, connection)) { answers[index] = answer }
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
            interrupt: exchange.interrupt)
    }

    private static func value(_ answer: Result<Rows, PostgresError>) throws(PostgresError) -> ColumnText {
        // The server goes, or has no room: it says nothing of the value.
        if let error = answer.failure, let state = error.sqlState, SQLState.isPassing(state),
            state != SQLState.queryCanceled
        {
            throw error
        }
        guard case .success(let rows) = answer, let row = rows.first else {
            Metrics.shared.judgeFailures.add()
            return .absent
        }
        return row[0].map { .text(Array($0.utf8)) } ?? .null
    }

    /// The connection keeps so many statements, and forgets them all when there are more.
    private func makeRoom(for statements: [String], _ connection: Connection) throws(PostgresError) {
        let new = Set(statements).filter { self.names[$0] == nil }
        guard names.count + new.count > Limits.maximumPreparedQuestions, !names.isEmpty else { return }
        var none: Set<String> = []
        _ = try connection.pipeline(
            [PipelinedStatement("DEALLOCATE ALL")], prepared: &none,
            timeoutMilliseconds: Limits.answerTimeout.wholeMilliseconds, interrupt: exchange.interrupt)
        names = [:]
        prepared = []
    }

    // MARK: Questions that take too long

    private func isPenalised(_ question: Question, _ now: UInt64) -> Bool {
        guard let until = penalties[question] else { return false }
        if now < until { return true }
        penalties[question] = nil
        return false
    }

    private func failed(_ asked: JudgedQuestion, _ error: PostgresError, _ now: UInt64) {
        // Neither the question nor the row: they may hold what nobody may read.
        Log.shared.debug("PostgreSQL could not decide on a row", [.sqlstate(error.sqlState ?? "")])
        guard error.sqlState == SQLState.queryCanceled else { return }
        if penalties.count >= Limits.maximumPenalties { penalties = penalties.filter { $0.value > now } }
        guard penalties.count < Limits.maximumPenalties else { return }
        penalties[asked.question] = now + Limits.questionPenalty.wholeNanoseconds
    }
}

extension Result {
    fileprivate var failure: Failure? { if case .failure(let error) = self { error } else { nil } }
}
