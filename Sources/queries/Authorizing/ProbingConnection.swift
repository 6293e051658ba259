import Asking
import Diagnostics
import Postgres
import System

/// Outcome of one statement that tests several askers of one role.
enum ProbeOutcome {
    /// Answers to the first questions of the statement, in order. The time may not have sufficed for the others.
    case answers([ChannelAnswer])
    /// A failure that concerns all questions of the statement.
    case refused(ChannelAuthorizationError)
    /// The database lacks objects that every probe needs.
    case unprepared(ProbePrerequisites.Unprepared)
    /// A policy's function left something in the session, so all answers are invalid.
    case spoiled
}

/// Connection that tests the rights of askers in private channels, many in one transaction that is rolled back.
///
/// One thread owns the connection.
final class ProbingConnection {
    let session: PolicySession
    private var insertion: ProbeScript.Insertion?
    /// Name of the testing function, by the role for which it was created.
    private var functions: [String: String] = [:]
    private var functionsMade = 0
    private var plansAreFreshUntil: UInt64 = 0

    init(_ target: ConnectionTarget, interrupt: Wake) throws(PostgresError) {
        let milliseconds = Limits.channelProbeTimeout.wholeMilliseconds
        session = try PolicySession(
            target, applicationName: "tidewire channels",
            settings: [
                "row_security=on", "statement_timeout=\(milliseconds)", "lock_timeout=0",
                "idle_in_transaction_session_timeout=\(10 * milliseconds)",
                // No transaction here is ever committed.
                "synchronous_commit=off",
            ], connectTimeout: Limits.channelConnectTimeout, answerTimeout: Limits.channelAnswerTimeout,
            interrupt: interrupt)
    }

    /// True if the connection must be replaced, because it holds too many functions or because a policy's function left
    /// statements in the session.
    var isFull: Bool { functionsMade >= Limits.maximumClaimsScripts || session.isSpoiled }

    /// Asks the questions in one statement. `timeout` limits the statement; after `budget` it begins no further
    /// question.
    func ask(
        _ questions: ArraySlice<ChannelQuestion>, as role: String, timeout: Duration, budget: Duration
    ) throws(PostgresError) -> ProbeOutcome {
        precondition(!questions.isEmpty && questions.allSatisfy { $0.role == role }, "a role is asked about by itself")
        if insertion == nil {
            switch try ProbePrerequisites.examine(session) {
            case .success(let found): insertion = found
            case .failure(let unprepared): return .unprepared(unprepared)
            }
        }
        guard let function = functions[role] else { return try first(questions, role, timeout, budget) }
        return try run(function, questions, role, timeout, budget)
    }

    /// Asks questions of a role that has no testing function yet.
    private func first(
        _ questions: ArraySlice<ChannelQuestion>, _ role: String, _ timeout: Duration, _ budget: Duration
    ) throws(PostgresError) -> ProbeOutcome {
        switch try ProbePrerequisites.standing(of: role, session) {
        case .refused: return .refused(.role)
        case .privileged(let mayRead, let mayWrite):
            return .answers(
                questions.map { question in
                    switch question.probe {
                    case .read(let presence): .rights(broadcast: mayRead, presence: presence ? mayRead : nil)
                    case .write: .rights(broadcast: mayWrite, presence: mayWrite)
                    }
                })
        case .probed: break
        }
        guard let insertion, try session.readSurroundings(of: role) else { return .refused(.role) }
        let name = "tidewire_\(functionsMade)"
        let text = ProbeScript.function(named: name, as: role, inserting: insertion)
        if let state = try session.make(function: text) { return .refused(.policy(sqlState: state)) }
        precondition(functions[role] == nil, "there is one function for a role")
        functionsMade += 1
        functions[role] = name
        // The first call takes longer, because PostgreSQL reads and plans everything.
        let longer = max(timeout, min(Limits.channelProbeTimeout, timeout + Limits.channelQuickTimeout))
        return try run(name, questions, role, longer, budget)
    }

    // MARK: One transaction

    private static let begin = PipelinedStatement("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
    private static let end = PipelinedStatement("ROLLBACK")
    /// Statement that discards PostgreSQL's plans. A plan contains the policies of a role and does not notice that the
    /// role has become a member of another role.
    private static let forgetPlans = PipelinedStatement("DISCARD PLANS")

    private func run(
        _ function: String, _ questions: ArraySlice<ChannelQuestion>, _ role: String, _ timeout: Duration,
        _ budget: Duration
    ) throws(PostgresError) -> ProbeOutcome {
        let head = [
            plansAreFresh() ? nil : ProbingConnection.forgetPlans, ProbingConnection.begin,
            try session.surroundingsStatement(role),
            // The timeout applies to the next statement, which calls the function.
            PipelinedStatement(
                "SELECT pg_catalog.set_config('statement_timeout', $1, true)", [String(timeout.wholeMilliseconds)],
                preparedAs: "timeout"),
        ].compactMap { $0 }
        let answers = try session.pipeline(
            head + [callStatement(function, questions, budget), ProbingConnection.end, PolicySession.clean])
        guard try session.isClean(answers.last) else { return .spoiled }
        for answer in answers[..<head.count] { _ = try answer.get() }
        assert(answers.count == head.count + 3, "between head and end is the one answer")
        switch answers[head.count] {
        case .success(let rows): return found(rows, questions, role)
        case .failure(let error):
            // PostgreSQL cancelled the statement between two questions.
            if error.sqlState == SQLState.queryCanceled { return .refused(.canceled(ProbingConnection.tookTooLong)) }
            return .refused(.policy(sqlState: error.sqlState ?? "XX000"))
        }
    }

    private func plansAreFresh() -> Bool {
        let now = Clock.monotonicNanoseconds()
        if now < plansAreFreshUntil { return true }
        plansAreFreshUntil = now + Limits.channelPlanLife.wholeNanoseconds
        return false
    }

    private func callStatement(
        _ function: String, _ questions: ArraySlice<ChannelQuestion>, _ budget: Duration
    ) -> PipelinedStatement {
        let arrays = (1...5).map { "CAST($\($0) AS pg_catalog.text[])" }.joined(separator: ", ")
        return PipelinedStatement(
            "SELECT * FROM pg_temp.\(function)(\(arrays), CAST($6 AS pg_catalog.int4))",
            [
                TextArray.literal(questions.map { String(decoding: $0.topic, as: UTF8.self) }[...]),
                TextArray.literal(questions.map { ProbeScript.code($0.probe) }[...]),
                TextArray.literal(questions.map(\.claims)[...]), TextArray.literal(questions.map(\.subject)[...]),
                TextArray.literal(questions.map(\.headers)[...]), String(budget.wholeMilliseconds),
            ], preparedAs: function)
    }

    // MARK: Answers

    /// Converts the rows of a testing statement to the answers for its questions.
    private func found(_ rows: Rows, _ questions: ArraySlice<ChannelQuestion>, _ role: String) -> ProbeOutcome {
        var answers: [ChannelAnswer] = []
        for (index, row) in rows.values.enumerated() {
            guard row.count == ProbeScript.Column.count, row[ProbeScript.Column.who] == String(index + 1),
                index < questions.count
            else { return broken("a probe answers about those it was asked about, in their order") }
            let answer = answer(row, role)
            guard answer.answers(questions[questions.startIndex + index].probe) else {
                return broken("a probe says of presence what it was asked")
            }
            answers.append(answer)
        }
        return .answers(answers)
    }

    /// Reports a bug and refuses all questions of the statement. The caller then asks each question alone.
    private func broken(_ rule: StaticString) -> ProbeOutcome {
        Impossible.happened(rule, in: .authorizing)
        return .refused(.policy(sqlState: "XX000"))
    }

    private func answer(_ row: [String?], _ role: String) -> ChannelAnswer {
        precondition(row.count == ProbeScript.Column.count, "a probe's row has its columns")
        guard let state = row[ProbeScript.Column.error] else {
            return .rights(
                broadcast: row[ProbeScript.Column.broadcast] == "t",
                presence: row[ProbeScript.Column.presence].map { $0 == "t" })
        }
        if state == SQLState.queryCanceled {
            return .failed(.canceled(ProbingConnection.tookTooLong))
        }
        if row[ProbeScript.Column.isPartition] == "t" { return .failed(.missingPartition) }
        switch row[ProbeScript.Column.step].flatMap(ProbeScript.Step.init) {
        case .insert? where ProbingConnection.missing.contains(state):
            // The table or the function was dropped or changed, so both are examined again.
            insertion = nil
            functions = [:]
            return .failed(.unprepared)
        case .role?:
            functions[role] = nil
            return .failed(.role)
        default: return .failed(.policy(sqlState: state))
        }
    }

    /// PostgreSQL's English message for a timeout. Clients receive it instead of the real message, which may come from
    /// a policy's function or be in another language.
    private static let tookTooLong = "canceling statement due to statement timeout"

    /// Error codes for a missing schema, table, column or function, and for missing rights to them.
    private static let missing: Set = ["3F000", "42P01", "42703", "42883", SQLState.insufficientPrivilege]
}
