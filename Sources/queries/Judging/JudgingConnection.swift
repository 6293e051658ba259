import Asking
import Catalog
import Change
import Diagnostics
import Policy
import Postgres
import System

/// Outcome of one run of a claims script: a query that PostgreSQL repeats for each set of claims.
enum ScriptOutcome {
    struct Answers {
        /// Rows that the script returned. The fields of a row are: the number of the claims, from 1; the number of the
        /// element, if elements were tried separately (0 if all failed); the error code; the outputs.
        var rows: [[String?]]
        var snapshot: VisibleTransactions
        var position: LSN

        /// Throws if a row lacks the script's columns, or answers for claims that were not asked about.
        func check(claims count: Int, _ loop: ClaimsScript) throws(PostgresError) {
            let isWhole = rows.allSatisfy { row in
                guard row.count == 3 + loop.outputCount, let place = row.place(after: 0) else { return false }
                return (0..<count).contains(place)
            }
            guard isWhole else { throw .impossible("a loop answers about those it was asked about", in: .judging) }
        }
    }

    case answers(Answers)
    /// The snapshot does not include a transaction that the question requires.
    case invisible
    case tooSlow
    case failed(sqlState: String)
}

/// Permission of the hub's own login to read a table completely, with the checks that must precede the query.
struct TableReading {
    enum Finding {
        case readable(TableReading)
        /// The login may not read all rows that the policy subject (role and claims) may read.
        case unreadable
        /// PostgreSQL could not answer now, so it is unknown whether the login may read the table.
        case unanswered
    }

    /// Statements that run before the query, in the same transaction. They fail if the login may no longer read the
    /// table.
    fileprivate var guards: [PipelinedStatement]
}

/// Connection that runs claims scripts, each in a read-only transaction that is rolled back.
///
/// One thread owns the connection. A script is a function in `pg_temp`. If the login may not create functions, the
/// script runs as single statements instead.
final class JudgingConnection {
    let session: PolicySession
    private var names: [ClaimsScript: String] = [:]

    /// Opens the connection. If `runsPolicies` is false, PostgreSQL raises an error wherever a policy would filter
    /// rows.
    init(
        _ target: ConnectionTarget, applicationName: String, runsPolicies: Bool, interrupt: Wake
    ) throws(PostgresError) {
        let milliseconds = Limits.policyTimeout.wholeMilliseconds
        session = try PolicySession(
            target, applicationName: applicationName,
            settings: [
                "default_transaction_read_only=on", "row_security=\(runsPolicies ? "on" : "off")",
                "statement_timeout=\(milliseconds)", "lock_timeout=\(milliseconds)",
                "idle_in_transaction_session_timeout=\(10 * milliseconds)",
            ], connectTimeout: Limits.connectTimeout, answerTimeout: Limits.answerTimeout, interrupt: interrupt)
    }

    var place: String { session.place }

    /// True if the connection must be replaced, because it holds too many scripts or because a user's function left
    /// statements in the session.
    var isFull: Bool { names.count >= Limits.maximumClaimsScripts || session.isSpoiled }

    // MARK: Queries

    func visibleTransactions() throws(PostgresError) -> VisibleTransactions {
        guard let visible = VisibleTransactions(try session.query(VisibleTransactions.question)) else {
            throw PolicySession.unreadable
        }
        return visible
    }

    /// True if the connection's login can switch to the role.
    func mayBecome(_ role: String) throws(PostgresError) -> Bool {
        let becoming = JudgingLogin.becoming(serverVersion: session.serverVersion)
        let rows = try session.query(
            """
            SELECT 1 FROM pg_catalog.pg_roles r
            WHERE r.rolname = $1 AND pg_catalog.pg_has_role(session_user, r.oid, '\(becoming)')
            """, [role])
        return !rows.isEmpty
    }

    /// Finds out if the hub's own login can read all rows of a table that a policy subject (role and claims) reads. The
    /// login reads as `role`; nil means as itself. If `owner` is not nil, a function of that owner reads the table, and
    /// the owner must see all rows too.
    func reading(
        _ table: UInt32, as role: String?, owner: UInt32?
    ) throws(PostgresError) -> TableReading.Finding {
        let becomes = role.map { [PipelinedStatement("SELECT pg_catalog.set_config('role', $1, true)", [$0])] } ?? []
        let parameters = [String(table), owner.map { String($0) }]
        let answers = try session.pipeline(
            [JudgingConnection.begin] + becomes + [
                PipelinedStatement(JudgingConnection.readingText, parameters), JudgingConnection.end,
            ])
        for case .failure(let error) in answers where error.sqlState.map(SQLState.isInconclusive) ?? true {
            return .unanswered
        }
        guard case .success(let rows) = answers[answers.count - 2], let row = rows.first, row.count == 3,
            row[0] == "t", let name = row[1]
        else { return .unreadable }
        guard row[2] == "t" else { return .readable(TableReading(guards: [])) }
        return .readable(
            TableReading(guards: [
                // The lock prevents changes of policies between this check and the reading.
                PipelinedStatement("LOCK TABLE \(name) IN ACCESS SHARE MODE"),
                PipelinedStatement(JudgingConnection.checkText, parameters),
                PipelinedStatement("SELECT pg_catalog.set_config('row_security', 'on', true)"),
            ]))
    }

    /// SQL that returns three values: true if the table may be read completely, the table's name, and true if policies
    /// apply.
    ///
    /// Parameter `$1` is the table. Parameter `$2` is the owner of the function that reads it, or NULL. The current
    /// role must have the rights, and its only policies on the table must be `true`. No policy may apply to the owner.
    /// Any other policy would be evaluated as the connection's role, which is not the role of the client.
    private static let readingText = """
        SELECT pg_catalog.has_schema_privilege(c.relnamespace, 'USAGE')
            AND pg_catalog.has_any_column_privilege(c.oid, 'SELECT')
            AND (NOT pg_catalog.row_security_active(c.oid) OR pg_catalog.has_table_privilege(c.oid, 'SELECT') AND (
                SELECT COALESCE(pg_catalog.bool_and(
                    q.polpermissive AND pg_catalog.pg_get_expr(q.polqual, q.polrelid) = 'true'), false)
                FROM pg_catalog.pg_policy q
                WHERE q.polrelid = c.oid AND q.polcmd IN ('r', '*') AND (0::pg_catalog.oid = ANY (q.polroles)
                    OR EXISTS (SELECT 1 FROM pg_catalog.pg_roles g
                        WHERE g.oid = ANY (q.polroles) AND pg_catalog.pg_has_role(g.oid, 'USAGE')))))
            AND COALESCE(($2::pg_catalog.oid IS NULL
                OR (SELECT pg_catalog.has_any_column_privilege(o.oid, c.oid, 'SELECT') AND (
                        NOT c.relrowsecurity OR o.rolsuper OR o.rolbypassrls
                        OR NOT c.relforcerowsecurity AND pg_catalog.pg_has_role(o.oid, c.relowner, 'USAGE'))
                    FROM pg_catalog.pg_roles o WHERE o.oid = $2::pg_catalog.oid)), false),
            pg_catalog.quote_ident(n.nspname) OPERATOR(pg_catalog.||) '.'
                OPERATOR(pg_catalog.||) pg_catalog.quote_ident(c.relname),
            pg_catalog.row_security_active(c.oid)
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.oid = $1::pg_catalog.oid
        """

    /// SQL that fails if the login may no longer read the table completely.
    private static let checkText = """
        SELECT 1 / CASE WHEN r.holds THEN 1 ELSE 0 END FROM (\(readingText)) AS r (holds, name, has_policies)
        """

    static let begin = PipelinedStatement(
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", preparedAs: "begin")
    static let end = PipelinedStatement("ROLLBACK", preparedAs: "end")

    // MARK: Loops

    /// Runs the script's query for each set of claims. `inputs` holds the elements of each input. The snapshot must
    /// include the transactions `xids`.
    func run(
        _ loop: ClaimsScript, claims: ArraySlice<String>, inputs: [[String?]], seeing xids: Set<UInt32>,
        reading: TableReading? = nil
    ) throws(PostgresError) -> ScriptOutcome {
        precondition(
            inputs.count == loop.inputCount && !claims.isEmpty, "a loop is asked with its inputs, for somebody")
        assert(inputs.allSatisfy { $0.count == inputs[0].count }, "inputs have a text for each row")
        let known = names[loop]
        if known == nil, let refusal = try make(loop) { return .failed(sqlState: refusal) }
        guard let name = names[loop] else { return .failed(sqlState: "XX000") }
        let guards = reading?.guards ?? []
        let head =
            [JudgingConnection.begin] + guards + [
                PipelinedStatement(VisibleTransactions.question, preparedAs: "snapshot"),
                PolicySession.position,
                try session.surroundingsStatement(loop.role),
            ]
        let body =
            session.mayMakeFunctions
            ? [callStatement(loop, name, claims, inputs)] : singleStatements(loop, name, claims, inputs)
        let answers = try session.pipeline(head + body + [JudgingConnection.end, PolicySession.clean])
        guard try session.isClean(answers.last) else { return .failed(sqlState: PolicySession.spoiled) }
        for case .failure(let error) in answers[1..<1 + guards.count] {
            return .failed(sqlState: error.sqlState ?? "XX000")
        }
        let answered = answers[(1 + guards.count)...]
        guard let snapshot = VisibleTransactions(try answered[answered.startIndex].get()) else {
            throw PolicySession.unreadable
        }
        guard xids.allSatisfy(snapshot.contains) else { return .invisible }
        let position =
            try answered[answered.startIndex + 1].get().first?.first.flatMap { $0.flatMap { LSN($0) } } ?? .zero
        let bodyAnswers = answers[head.count..<head.count + body.count]
        guard session.mayMakeFunctions else {
            let rows = try singleAnswers(loop, name, claims, inputs, Array(bodyAnswers))
            return rows.map { .answers(ScriptOutcome.Answers(rows: $0, snapshot: snapshot, position: position)) }
                ?? .tooSlow
        }
        switch answers[head.count] {
        case .success(let rows):
            return .answers(ScriptOutcome.Answers(rows: rows.values, snapshot: snapshot, position: position))
        case .failure(let error):
            let state = error.sqlState ?? "XX000"
            return state == SQLState.queryCanceled ? .tooSlow : .failed(sqlState: state)
        }
    }

    private func callStatement(
        _ loop: ClaimsScript, _ name: String, _ claims: ArraySlice<String>, _ inputs: [[String?]]
    ) -> PipelinedStatement {
        let parameters = (0...loop.inputCount).map { "CAST($\($0 + 1) AS pg_catalog.text[])" }
        return PipelinedStatement(
            "SELECT * FROM pg_temp.\(name)(\(parameters.joined(separator: ", ")))",
            [TextArray.literal(claims)] + inputs.map { TextArray.literal($0) }, preparedAs: name)
    }

    /// Creates the script's function in the session. Returns the error code if PostgreSQL refuses.
    private func make(_ loop: ClaimsScript) throws(PostgresError) -> String? {
        let name = "tidewire_\(names.count)"
        guard try session.readSurroundings(of: loop.role) else { return PolicySession.noSuchRole }
        if session.mayMakeFunctions, let refusal = try session.make(function: loop.function(named: name)) {
            return refusal
        }
        names[loop] = name
        return nil
    }
}

// MARK: Without functions

extension JudgingConnection {
    static let save = PipelinedStatement("SAVEPOINT tidewire", preparedAs: "save")
    static let undo = PipelinedStatement("ROLLBACK TO SAVEPOINT tidewire", preparedAs: "undo")
    private static let statementsForEach = 4
    private static let statementsForElement = 5

    private func singleStatements(
        _ loop: ClaimsScript, _ name: String, _ claims: ArraySlice<String>, _ inputs: [[String?]]
    ) -> [PipelinedStatement] {
        let literals = inputs.map { Optional(TextArray.literal($0)) }
        return claims.flatMap { single(loop, name, $0, literals) }
    }

    private func single(
        _ loop: ClaimsScript, _ name: String, _ claims: String, _ inputs: [String?]
    ) -> [PipelinedStatement] {
        [
            JudgingConnection.save, claimsStatement(claims, loop.role),
            PipelinedStatement(loop.asStatement, inputs, preparedAs: name), JudgingConnection.undo,
        ]
    }

    func claimsStatement(_ claims: String, _ role: String?) -> PipelinedStatement {
        guard let role else {
            return PipelinedStatement(
                "SELECT pg_catalog.set_config('request.jwt.claims', $1, true)", [claims], preparedAs: "claims")
        }
        return PipelinedStatement(
            "SELECT pg_catalog.set_config('request.jwt.claims', $1, true), pg_catalog.set_config('role', $2, true)",
            [claims, role], preparedAs: "claims_and_role")
    }

    /// Converts the answers of single statements to the rows that the script's function would return; nil after a
    /// timeout.
    private func singleAnswers(
        _ loop: ClaimsScript, _ name: String, _ claims: ArraySlice<String>, _ inputs: [[String?]],
        _ answers: [Result<Rows, PostgresError>]
    ) throws(PostgresError) -> [[String?]]? {
        precondition(
            answers.count == claims.count * JudgingConnection.statementsForEach, "each has its own statements")
        var found: [[String?]] = []
        let elementCount = inputs.first?.count ?? 0
        for (index, claims) in claims.enumerated() {
            let who = String(index + 1)
            switch JudgingConnection.answer(answers, index) {
            case .success(let rows): found += rows.values.map { [who, nil, nil] + $0 }
            case .failure(let error):
                if error.sqlState == SQLState.queryCanceled { return nil }
                guard let making = loop.makingStatement, elementCount > 0 else {
                    found.append(JudgingConnection.failureRow(who, nil, error.sqlState, loop))
                    continue
                }
                guard let rows = try singleElements(loop, name, making, claims, inputs, who) else { return nil }
                found += rows
            }
        }
        return found
    }

    /// Returns the answer of the query for the claims with this index, or the error of the statement that set the
    /// claims.
    private static func answer(
        _ answers: [Result<Rows, PostgresError>], _ index: Int
    ) -> Result<Rows, PostgresError> {
        if case .failure(let error) = answers[index * statementsForEach + 1] { return .failure(error) }
        return answers[index * statementsForEach + 2]
    }

    /// Returns a result row in the script's form that reports an error: the outputs are nil.
    private static func failureRow(
        _ who: String, _ element: String?, _ sqlState: String?, _ loop: ClaimsScript
    ) -> [String?] {
        [who, element, sqlState ?? "XX000"] + Array(repeating: nil, count: loop.outputCount)
    }

    /// Evaluates the policy on each row separately. Tells rows that PostgreSQL cannot build from their texts apart from
    /// rows on which the policy fails.
    private func singleElements(
        _ loop: ClaimsScript, _ name: String, _ making: String, _ claims: String, _ inputs: [[String?]], _ who: String
    ) throws(PostgresError) -> [[String?]]? {
        let count = inputs.first?.count ?? 0
        let statements = (0..<count).flatMap { element in
            let row = inputs.map { TextArray.literal([$0[element]]) }
            var own = single(loop, name, claims, row)
            own.insert(PipelinedStatement(making, row, preparedAs: "\(name)_making"), at: own.count - 2)
            assert(own.count == JudgingConnection.statementsForElement, "each row has its statements")
            return own
        }
        let answers = try session.pipeline(
            [JudgingConnection.begin, try session.surroundingsStatement(loop.role)] + statements
                + [JudgingConnection.end, PolicySession.clean])
        guard try session.isClean(answers.last) else { return nil }
        var found: [[String?]] = []
        for element in 0..<count {
            let first = 2 + element * JudgingConnection.statementsForElement
            let own = answers[first..<first + JudgingConnection.statementsForElement]
            let errors = own.map { answer -> String? in
                if case .failure(let error) = answer { error.sqlState ?? "XX000" } else { nil }
            }
            if errors.contains(SQLState.queryCanceled) { return nil }
            let isUnmade = errors[1] == nil && errors[2] != nil
            switch own[first + 3] {
            case .success(let rows): found += rows.values.map { [who, String(element + 1), nil] + $0 }
            case .failure:
                let state = isUnmade ? ClaimsScript.unmade : errors[1] ?? errors[3]
                found.append(JudgingConnection.failureRow(who, String(element + 1), state, loop))
            }
        }
        return found
    }

    // MARK: Explanations

    /// Evaluates each expression separately, in the role and with the claims of the explanation.
    func explain(_ explanation: PolicyExplanation) throws(PostgresError) -> [ExplainedValue] {
        guard try session.readSurroundings(of: explanation.subject.role) else {
            let refused = ExplainedValue.failed(
                sqlState: PolicySession.noSuchRole, message: "there is no such role")
            return explanation.expressions.map { _ in refused }
        }
        let rows = explanation.row.source(explanation.row.array { "CAST($\($0 + 1) AS pg_catalog.text[])" })
        let inputs = explanation.texts.map { Optional(TextArray.literal([$0])) }
        let statements = explanation.expressions.flatMap { expression in
            [
                JudgingConnection.save, claimsStatement(explanation.subject.claims, explanation.subject.role),
                PipelinedStatement(
                    """
                    SELECT CAST((\(expression)
                    ) AS pg_catalog.text) FROM \(rows)
                    """, inputs),
                JudgingConnection.undo,
            ]
        }
        let answers = try session.pipeline(
            [JudgingConnection.begin, try session.surroundingsStatement(explanation.subject.role)] + statements
                + [JudgingConnection.end, PolicySession.clean])
        guard try session.isClean(answers.last) else {
            let spoiled = ExplainedValue.failed(
                sqlState: PolicySession.spoiled, message: "a function leaves statements in the session")
            return explanation.expressions.map { _ in spoiled }
        }
        let each = Array(answers.dropFirst(2))
        precondition(each.count == explanation.expressions.count * 4 + 2, "each expression has its four statements")
        return explanation.expressions.indices.map { index in
            switch JudgingConnection.answer(each, index) {
            case .success(let rows): .value(rows.first?.first ?? nil)
            case .failure(let error): .failed(sqlState: error.sqlState ?? "XX000", message: error.message)
            }
        }
    }
}
