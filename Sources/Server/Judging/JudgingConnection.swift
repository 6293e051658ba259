import Change
import Diagnostics
import Policy
import Postgres
import System

/// What came of one loop over claims.
enum LoopOutcome {
    struct Answers {
        /// The claims' number from 1, the element's where elements were tried by themselves (0: all of them fail), the
        /// error's code, outputs.
        var rows: [[String?]]
        var snapshot: VisibleTransactions
        var position: LSN
    }

    case answers(Answers)
    /// A transaction that has to be seen is not yet.
    case invisible
    case tooSlow
    case failed(sqlState: String)
}

/// A connection on which loops over claims run, each in one transaction that only reads and is rolled back.
///
/// It belongs to one thread. Functions for the loops are made in `pg_temp`, or not at all where that is not allowed.
final class JudgingConnection {
    /// What a client's session of a role is set to.
    private struct Surroundings {
        var searchPath: String
        var timeZone: String
    }

    private let connection: Connection
    private let interrupt: Wake
    private let mayMakeFunctions: Bool
    private let usual: Surroundings
    private var surroundings: [String: Surroundings] = [:]
    private var names: [ClaimsLoop: String] = [:]
    private var prepared: Set<String> = []
    /// A policy's function left something in the session that outlives its transaction: what is asked next might be
    /// answered by that function.
    private(set) var isSpoiled = false

    /// One that runs no policies is told by the server where a policy would decide.
    init(
        _ target: ConnectionTarget, applicationName: String, runsPolicies: Bool, interrupt: Wake
    ) throws(PostgresError) {
        let milliseconds = Limits.policyTimeout.wholeMilliseconds
        connection = try Connection(
            target, applicationName: applicationName, timeoutSeconds: Limits.connectTimeout.wholeSeconds,
            settings: [
                "default_transaction_read_only=on", "row_security=\(runsPolicies ? "on" : "off")",
                "standard_conforming_strings=on",
                "statement_timeout=\(milliseconds)", "lock_timeout=\(milliseconds)",
                "idle_in_transaction_session_timeout=\(10 * milliseconds)",
                // The same statement for other values: a plan made once serves all.
                "plan_cache_mode=force_generic_plan", "jit=off",
            ], keepsTimeZone: true, interrupt: interrupt)
        connection.ignoreNotices()
        self.interrupt = interrupt
        let rows = try JudgingConnection.ask(
            [
                PipelinedStatement(
                    """
                    SELECT pg_catalog.current_setting('search_path'), pg_catalog.current_setting('TimeZone'),
                        pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMPORARY')
                            AND NOT pg_catalog.pg_is_in_recovery()
                    """),
                // What is asked below means PostgreSQL's own.
                PipelinedStatement("SELECT pg_catalog.set_config('search_path', 'pg_catalog', false)"),
            ], connection, interrupt)
        let found = try rows[0].get().first ?? []
        _ = try rows[1].get()
        guard found.count == 3, let path = found[0], let zone = found[1] else { throw JudgingConnection.unreadable }
        usual = Surroundings(searchPath: path, timeZone: zone)
        mayMakeFunctions = found[2] == "t"
    }

    private static let unreadable = PostgresError(operation: "policies", message: "settings cannot be read")

    var place: String { connection.place }
    var serverVersion: Int { connection.serverVersion }

    /// So many loops are kept, and nothing that others left: else it is made anew.
    var isFull: Bool { names.count >= Limits.maximumPolicyLoops || isSpoiled }

    // MARK: Asking

    private static func ask(
        _ statements: [PipelinedStatement], _ connection: Connection, _ interrupt: Wake
    ) throws(PostgresError) -> [Result<Rows, PostgresError>] {
        var none: Set<String> = []
        return try connection.pipeline(
            statements, prepared: &none, timeoutMilliseconds: Limits.answerTimeout.wholeMilliseconds,
            interrupt: interrupt)
    }

    private func pipeline(_ statements: [PipelinedStatement]) throws(PostgresError) -> [Result<Rows, PostgresError>] {
        try connection.pipeline(
            statements, prepared: &prepared, timeoutMilliseconds: Limits.answerTimeout.wholeMilliseconds,
            interrupt: interrupt)
    }

    func query(_ sql: String, _ parameters: [String?] = []) throws(PostgresError) -> Rows {
        guard let answer = try pipeline([PipelinedStatement(sql, parameters)]).first else {
            throw JudgingConnection.unreadable
        }
        return try answer.get()
    }

    func visibleTransactions() throws(PostgresError) -> VisibleTransactions {
        guard let visible = VisibleTransactions(try query(VisibleTransactions.question)) else {
            throw JudgingConnection.unreadable
        }
        return visible
    }

    /// Whether no policy decides what somebody may read of a table, neither for this connection in the role (nil: as who
    /// it is) nor, where a function's owner reads, for the owner.
    func readsAll(_ table: UInt32, as role: String?, owner: UInt32?) throws(PostgresError) -> Bool {
        let becomes = role.map { [PipelinedStatement("SELECT pg_catalog.set_config('role', $1, true)", [$0])] } ?? []
        let answers = try pipeline(
            [JudgingConnection.begin] + becomes + [
                PipelinedStatement(
                    """
                    SELECT NOT pg_catalog.row_security_active(c.oid) AND COALESCE(($2::pg_catalog.oid IS NULL
                        OR (SELECT pg_catalog.has_table_privilege(o.oid, c.oid, 'SELECT') AND (
                                NOT c.relrowsecurity OR o.rolsuper OR o.rolbypassrls
                                OR NOT c.relforcerowsecurity AND pg_catalog.pg_has_role(o.oid, c.relowner, 'USAGE'))
                            FROM pg_catalog.pg_roles o WHERE o.oid = $2::pg_catalog.oid)), false)
                    FROM pg_catalog.pg_class c WHERE c.oid = $1::pg_catalog.oid
                    """, [String(table), owner.map { String($0) }]),
                JudgingConnection.end,
            ])
        guard case .success(let rows) = answers[answers.count - 2] else { return false }
        return rows.first?.first == "t"
    }

    private static let begin = PipelinedStatement(
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", preparedAs: "begin")
    /// What functions set for the session goes with what they set for the transaction …
    private static let end = PipelinedStatement("ROLLBACK", preparedAs: "end")
    /// … but for locks that they took for the session, and for statements: a function can take a prepared one away and
    /// leave another of that name. So this one has no name.
    private static let clean = PipelinedStatement(
        """
        SELECT pg_catalog.pg_advisory_unlock_all(), pg_catalog.count(*) FILTER (WHERE s.from_sql),
            pg_catalog.count(*) FILTER (WHERE NOT s.from_sql)
        FROM pg_catalog.pg_prepared_statements s
        """)

    private static let position = PipelinedStatement(
        """
        SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
            ELSE pg_catalog.pg_current_wal_insert_lsn() END
        """, preparedAs: "position")

    // MARK: Loops

    /// Asks the loop's question for each of the claims. `inputs` holds the elements of each input.
    func run(
        _ loop: ClaimsLoop, claims: ArraySlice<String>, inputs: [[String?]], seeing xids: Set<UInt32>
    ) throws(PostgresError) -> LoopOutcome {
        let known = names[loop]
        if known == nil, let refusal = try make(loop) { return .failed(sqlState: refusal) }
        guard let name = names[loop] else { return .failed(sqlState: "XX000") }
        let head = [
            JudgingConnection.begin,
            PipelinedStatement(VisibleTransactions.question, preparedAs: "snapshot"),
            JudgingConnection.position,
            surroundingsStatement(loop.role),
        ]
        let body =
            mayMakeFunctions
            ? [callStatement(loop, name, claims, inputs)] : singleStatements(loop, name, claims, inputs)
        let answers = try pipeline(head + body + [JudgingConnection.end, JudgingConnection.clean])
        guard isClean(answers.last) else { return .failed(sqlState: JudgingConnection.spoiled) }
        guard let snapshot = VisibleTransactions(try answers[1].get()) else { throw JudgingConnection.unreadable }
        guard xids.allSatisfy(snapshot.contains) else { return .invisible }
        let position = try answers[2].get().first?.first.flatMap { $0.flatMap { LSN($0) } } ?? .zero
        let bodyAnswers = answers[head.count..<head.count + body.count]
        guard mayMakeFunctions else {
            let rows = try singleAnswers(loop, name, claims, inputs, Array(bodyAnswers))
            return rows.map { .answers(LoopOutcome.Answers(rows: $0, snapshot: snapshot, position: position)) }
                ?? .tooSlow
        }
        switch answers[head.count] {
        case .success(let rows):
            return .answers(LoopOutcome.Answers(rows: rows.values, snapshot: snapshot, position: position))
        case .failure(let error):
            let state = error.sqlState ?? "XX000"
            return state == SQLState.queryCanceled ? .tooSlow : .failed(sqlState: state)
        }
    }

    /// `prohibited_sql_statement_attempted`.
    private static let spoiled = "2F003"

    /// Whether the session has the statements that were prepared here, and no others.
    private func isClean(_ answer: Result<Rows, PostgresError>?) -> Bool {
        if case .success(let rows)? = answer, let row = rows.first, row.count == 3, row[1] == "0",
            row[2] == String(prepared.count)
        {
            return true
        }
        if !isSpoiled {
            Log.shared.warning("a function that a policy calls leaves statements in its session: it lets nobody read")
        }
        isSpoiled = true
        return false
    }

    private func callStatement(
        _ loop: ClaimsLoop, _ name: String, _ claims: ArraySlice<String>, _ inputs: [[String?]]
    ) -> PipelinedStatement {
        let parameters = (0...loop.inputCount).map { "CAST($\($0 + 1) AS pg_catalog.text[])" }
        return PipelinedStatement(
            "SELECT * FROM pg_temp.\(name)(\(parameters.joined(separator: ", ")))",
            [TextArray.literal(claims)] + inputs.map { TextArray.literal($0) }, preparedAs: name)
    }

    /// The code of the error where the loop cannot be made.
    private func make(_ loop: ClaimsLoop) throws(PostgresError) -> String? {
        let name = "tidewire_\(names.count)"
        guard try readSurroundings(of: loop.role) else { return JudgingConnection.noSuchRole }
        guard mayMakeFunctions else {
            names[loop] = name
            return nil
        }
        let answers = try pipeline([
            PipelinedStatement("BEGIN READ WRITE"), PipelinedStatement(loop.function(named: name)),
            PipelinedStatement("COMMIT"),
        ])
        if case .failure(let error) = answers[1] { return error.sqlState ?? "XX000" }
        names[loop] = name
        return nil
    }

    // MARK: What a client's session is set to

    private func surroundingsStatement(_ role: String?) -> PipelinedStatement {
        let surroundings = role.flatMap { self.surroundings[$0] } ?? usual
        return PipelinedStatement(
            "SELECT pg_catalog.set_config('search_path', $1, true), pg_catalog.set_config('TimeZone', $2, true)",
            [surroundings.searchPath, surroundings.timeZone], preparedAs: "surroundings")
    }

    /// `invalid_parameter_value`, as PostgreSQL says it of a role that does not exist.
    private static let noSuchRole = "22023"

    /// As the database and the role say it, the role in this database before all. False where there is no such role:
    /// `none` is a word that PostgreSQL takes, and means the login, which is nobody's role either.
    private func readSurroundings(of role: String?) throws(PostgresError) -> Bool {
        guard let role else { return true }
        let exists = try query(
            "SELECT 1 FROM pg_catalog.pg_roles r WHERE r.rolname = $1 AND r.rolname <> session_user", [role])
        if exists.isEmpty { return false }
        let rows = try query(
            """
            SELECT c.setting FROM pg_catalog.pg_db_role_setting s
                JOIN pg_catalog.pg_database d ON d.datname = pg_catalog.current_database()
                CROSS JOIN LATERAL pg_catalog.unnest(s.setconfig) AS c (setting)
            WHERE s.setdatabase IN (0, d.oid)
                AND s.setrole IN (0, (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = $1))
            ORDER BY s.setrole <> 0, s.setdatabase <> 0
            """, [role])
        var found = usual
        for row in rows.values {
            guard let setting = row[0], let end = setting.firstIndex(of: "=") else { continue }
            let value = String(setting[setting.index(after: end)...])
            switch setting[..<end].lowercased() {
            case "search_path": found.searchPath = value
            case "timezone": found.timeZone = value
            default: continue
            }
        }
        found.searchPath = JudgingConnection.ownFirst(found.searchPath)
        surroundings[role] = found
        return true
    }

    /// Unqualified names in policies mean PostgreSQL's own: those come first unless a path says otherwise.
    private static func ownFirst(_ path: String) -> String {
        path.contains("pg_catalog") ? "pg_catalog, " + path : path
    }
}

// MARK: Where no function can be made

extension JudgingConnection {
    private static let save = PipelinedStatement("SAVEPOINT tidewire", preparedAs: "save")
    private static let undo = PipelinedStatement("ROLLBACK TO SAVEPOINT tidewire", preparedAs: "undo")
    private static let statementsForEach = 4

    private func singleStatements(
        _ loop: ClaimsLoop, _ name: String, _ claims: ArraySlice<String>, _ inputs: [[String?]]
    ) -> [PipelinedStatement] {
        let literals = inputs.map { Optional(TextArray.literal($0)) }
        return claims.flatMap { single(loop, name, $0, literals) }
    }

    private func single(
        _ loop: ClaimsLoop, _ name: String, _ claims: String, _ inputs: [String?]
    ) -> [PipelinedStatement] {
        [
            JudgingConnection.save, claimsStatement(claims, loop.role),
            PipelinedStatement(loop.asStatement, inputs, preparedAs: name), JudgingConnection.undo,
        ]
    }

    private func claimsStatement(_ claims: String, _ role: String?) -> PipelinedStatement {
        guard let role else {
            return PipelinedStatement(
                "SELECT pg_catalog.set_config('request.jwt.claims', $1, true)", [claims], preparedAs: "claims")
        }
        return PipelinedStatement(
            "SELECT pg_catalog.set_config('request.jwt.claims', $1, true), pg_catalog.set_config('role', $2, true)",
            [claims, role], preparedAs: "claims_and_role")
    }

    /// The rows that the function would have returned; nil where it took too long.
    private func singleAnswers(
        _ loop: ClaimsLoop, _ name: String, _ claims: ArraySlice<String>, _ inputs: [[String?]],
        _ answers: [Result<Rows, PostgresError>]
    ) throws(PostgresError) -> [[String?]]? {
        var found: [[String?]] = []
        let elementCount = inputs.first?.count ?? 0
        for (index, claims) in claims.enumerated() {
            let who = String(index + 1)
            switch JudgingConnection.answer(answers, index) {
            case .success(let rows): found += rows.values.map { [who, nil, nil] + $0 }
            case .failure(let error):
                if error.sqlState == SQLState.queryCanceled { return nil }
                found.append(JudgingConnection.failed(who, nil, error, loop))
                guard loop.shape == .whole, elementCount > 1 else { continue }
                guard let rows = try singleElements(loop, name, claims, inputs, who) else { return nil }
                found += rows
            }
        }
        return found
    }

    private static func answer(
        _ answers: [Result<Rows, PostgresError>], _ index: Int
    ) -> Result<Rows, PostgresError> {
        if case .failure(let error) = answers[index * statementsForEach + 1] { return .failure(error) }
        return answers[index * statementsForEach + 2]
    }

    private static func failed(
        _ who: String, _ element: String?, _ error: PostgresError, _ loop: ClaimsLoop
    ) -> [String?] {
        [who, element, error.sqlState ?? "XX000"] + Array(repeating: nil, count: loop.outputCount)
    }

    private func singleElements(
        _ loop: ClaimsLoop, _ name: String, _ claims: String, _ inputs: [[String?]], _ who: String
    ) throws(PostgresError) -> [[String?]]? {
        let count = inputs.first?.count ?? 0
        let statements = (0..<count).flatMap { element in
            single(loop, name, claims, inputs.map { TextArray.literal([$0[element]]) })
        }
        let answers = try pipeline(
            [JudgingConnection.begin, surroundingsStatement(loop.role)] + statements
                + [JudgingConnection.end, JudgingConnection.clean])
        guard isClean(answers.last) else { return nil }
        var found: [[String?]] = []
        for element in 0..<count {
            switch JudgingConnection.answer(Array(answers.dropFirst(2)), element) {
            case .success(let rows): found += rows.values.map { [who, String(element + 1), nil] + $0 }
            case .failure(let error):
                if error.sqlState == SQLState.queryCanceled { return nil }
                found.append(JudgingConnection.failed(who, String(element + 1), error, loop))
            }
        }
        return found
    }

    // MARK: Explaining

    /// Each expression by itself, in the claimant's role.
    func explain(_ explanation: PolicyExplanation) throws(PostgresError) -> [ExplainedValue] {
        guard try readSurroundings(of: explanation.claimant.role) else {
            let refused = ExplainedValue.failed(
                sqlState: JudgingConnection.noSuchRole, message: "there is no such role")
            return explanation.expressions.map { _ in refused }
        }
        let rows = ClaimsLoop.rows(explanation.columns) { "CAST($\($0 + 1) AS pg_catalog.text[])" }
        let inputs = explanation.row.map { Optional(TextArray.literal([$0])) }
        let statements = explanation.expressions.flatMap { expression in
            [
                JudgingConnection.save, claimsStatement(explanation.claimant.claims, explanation.claimant.role),
                PipelinedStatement(
                    """
                    SELECT CAST((\(expression)
                    ) AS pg_catalog.text) FROM \(rows) AS \(Quoted.identifier(explanation.relation))
                    """, explanation.columns.isEmpty ? [] : inputs),
                JudgingConnection.undo,
            ]
        }
        let answers = try pipeline(
            [JudgingConnection.begin, surroundingsStatement(explanation.claimant.role)] + statements
                + [JudgingConnection.end, JudgingConnection.clean])
        guard isClean(answers.last) else {
            let spoiled = ExplainedValue.failed(
                sqlState: JudgingConnection.spoiled, message: "a function leaves statements in the session")
            return explanation.expressions.map { _ in spoiled }
        }
        let each = Array(answers.dropFirst(2))
        return explanation.expressions.indices.map { index in
            switch JudgingConnection.answer(each, index) {
            case .success(let rows): .value(rows.first?.first ?? nil)
            case .failure(let error): .failed(sqlState: error.sqlState ?? "XX000", message: error.message)
            }
        }
    }
}

/// Arrays of texts as parameters; they may be long.
enum TextArray {
    /// `{"a",NULL}`.
    static func literal(_ elements: some Sequence<String?>) -> String {
        var bytes: [UInt8] = [UInt8(ascii: "{")]
        for element in elements {
            if bytes.count > 1 { bytes.append(UInt8(ascii: ",")) }
            append(element, to: &bytes)
        }
        bytes.append(UInt8(ascii: "}"))
        return String(decoding: bytes, as: UTF8.self)
    }

    static func literal(_ elements: ArraySlice<String>) -> String { literal(elements.lazy.map { Optional($0) }) }

    private static func append(_ element: String?, to bytes: inout [UInt8]) {
        guard let element else {
            bytes.append(contentsOf: "NULL".utf8)
            return
        }
        bytes.append(UInt8(ascii: "\""))
        for byte in element.utf8 {
            if byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") { bytes.append(UInt8(ascii: "\\")) }
            bytes.append(byte)
        }
        bytes.append(UInt8(ascii: "\""))
    }
}
