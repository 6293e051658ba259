import Diagnostics
import Policy
import Postgres
import Replication
import System

/// The judge's thread: connects, asks, answers.
final class JudgeWorker {
    private let target: ConnectionTarget
    private let exchange: JudgeExchange
    private var backoff = Backoff()
    private var lastTrouble = LastTrouble()
    private var seen: UInt64 = 0
    /// Taken and not yet answered.
    private var jobs: [JudgeExchange.Job] = []
    /// A lost connection is made again once, and what was asked then is asked again.
    private var mayAskAgain = false
    /// The names under which the connection knows statements, by their text.
    private var names: [String: String] = [:]
    private var prepared: Set<String> = []
    /// Questions that took too long, and when they may be asked again.
    private var penalties: [Question: UInt64] = [:]

    init(_ target: ConnectionTarget, _ exchange: JudgeExchange) {
        self.target = target
        self.exchange = exchange
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
            settings: CatalogReader.settings(statementTimeout: Limits.questionTimeout.wholeMilliseconds)
                + ["plan_cache_mode=force_generic_plan", "jit=off"],
            interrupt: exchange.interrupt)
        names = [:]
        prepared = []
        Metrics.shared.judgeConnected.set(Int64(1))
        while !exchange.interrupt.isRung {
            if jobs.isEmpty { jobs = exchange.take(until: .max, seen: &seen) }
            while let job = jobs.first, !exchange.interrupt.isRung {
                let answers = try answers(job.questions, connection)
                jobs.removeFirst()
                answered()
                job.then(answers)
            }
        }
    }

    private func answered() {
        backoff.reset()
        lastTrouble = LastTrouble()
        mayAskAgain = true
    }

    private func ended(_ error: PostgresError) {
        if exchange.interrupt.isRung { return }
        Metrics.shared.judgeConnected.set(Int64(0))
        if mayAskAgain {
            mayAskAgain = false
            return
        }
        let delay = backoff.next()
        let fields = { LastTrouble.fields(error) + [.delay(delay)] }
        if lastTrouble.isNews(error) {
            Log.shared.warning("PostgreSQL cannot be asked about rows; trying again", fields())
        } else {
            Log.shared.debug("PostgreSQL still cannot be asked about rows; trying again", fields())
        }
        giveUp()
        let end = Clock.monotonicNanoseconds() + delay.wholeNanoseconds
        while Clock.monotonicNanoseconds() < end, !exchange.interrupt.isRung {
            jobs += exchange.take(until: end, seen: &seen)
            giveUp()
        }
    }

    private func giveUp() {
        let jobs = self.jobs
        self.jobs = []
        for job in jobs {
            Metrics.shared.judgeFailures.add(job.questions.count)
            job.then(job.questions.map { _ in nil })
        }
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
        try makeRoom(for: questions, connection)
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

    /// The connection keeps so many statements, and forgets them all when there are more.
    private func makeRoom(for questions: [JudgedQuestion], _ connection: Connection) throws(PostgresError) {
        let new = Set(questions.map(\.question.sql)).filter { self.names[$0] == nil }
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
