import Diagnostics
import Policy
import Postgres
import System

/// Connection that evaluates policies, in one transaction after the other. Each transaction is rolled back.
///
/// One thread owns a session. The session applies the settings that a client's session of a role would have. It also
/// detects if a policy's function leaves something in the session that a rollback does not undo.
public final class PolicySession {
    public let connection: Connection
    private let interrupt: Wake
    private let answerMilliseconds: Int
    /// True if the session can create functions in `pg_temp`. That needs a privilege and a writable database.
    public let mayMakeFunctions: Bool
    /// Values of the settings in `ValueSettings.followed` and `.required` when the session began, by name.
    private let usual: [String: String]
    /// Settings of each role that differ from the session's own, by role. Roles under which policies are not evaluated
    /// are missing.
    private var surroundings: [String: [String: String]] = [:]
    /// Settings of databases and roles when the session began, as one text. A different text later means that they
    /// changed.
    private var roleSettings: String?
    private var prepared: Set<String> = []
    /// True if a policy's function left something in the session that outlives its transaction. It could then influence
    /// later answers.
    public private(set) var isSpoiled = false

    public init(
        _ target: ConnectionTarget, applicationName: String, settings: [String], connectTimeout: Duration,
        answerTimeout: Duration, interrupt: Wake
    ) throws(PostgresError) {
        connection = try Connection(
            target, applicationName: applicationName, timeoutSeconds: connectTimeout.wholeSeconds,
            // The same statements run with many values, so one generic plan serves all.
            settings: settings + ["plan_cache_mode=force_generic_plan", "jit=off"], keepsSettings: true,
            interrupt: interrupt)
        connection.ignoreNotices()
        self.interrupt = interrupt
        answerMilliseconds = answerTimeout.wholeMilliseconds
        var none: Set<String> = []
        let rows = try connection.pipeline(
            [
                PipelinedStatement("SELECT pg_catalog.lower(s.name), s.setting FROM pg_catalog.pg_settings s"),
                PipelinedStatement(
                    """
                    SELECT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMPORARY')
                            AND NOT pg_catalog.pg_is_in_recovery(), (\(PolicySession.roleSettingsText))
                    """),
                // Names in later statements must refer to PostgreSQL's own objects.
                PipelinedStatement("SELECT pg_catalog.set_config('search_path', 'pg_catalog', false)"),
                ValueSettings.ownStatement,
            ], prepared: &none, timeoutMilliseconds: answerMilliseconds, interrupt: interrupt)
        let wanted = ValueSettings.followed.union(ValueSettings.required.keys)
        var usual: [String: String] = [:]
        for row in try rows[0].get().values {
            if let name = row[0], wanted.contains(name) { usual[name] = row[1] }
        }
        let found = try rows[1].get().first ?? []
        for set in rows[2...] { _ = try set.get() }
        guard found.count == 2, usual.count == wanted.count else { throw PolicySession.unreadable }
        self.usual = usual
        mayMakeFunctions = found[0] == "t"
        roleSettings = found[1]
    }

    public static let unreadable = PostgresError(operation: "policies", message: "settings cannot be read")

    public var place: String { connection.place }
    public var serverVersion: Int { connection.serverVersion }

    // MARK: Queries

    /// Closure that the session calls at intervals while it waits for an answer. If it returns false, the session gives
    /// up the question and is lost.
    public var isStillWanted: (() -> Bool)? {
        get { connection.isStillWanted }
        set { connection.isStillWanted = newValue }
    }

    /// Passes the rows of one statement to `each`, one after the other; see `Connection.stream`.
    public func stream(_ sql: String, each: (RawSpan) -> Bool) throws(PostgresError) {
        try connection.stream(sql, timeoutMilliseconds: answerMilliseconds, interrupt: interrupt, each: each)
    }

    public func pipeline(_ statements: [PipelinedStatement]) throws(PostgresError) -> [Result<Rows, PostgresError>] {
        let answers = try connection.pipeline(
            statements, prepared: &prepared, timeoutMilliseconds: answerMilliseconds, interrupt: interrupt)
        guard answers.count == statements.count else { throw .impossible("a statement has one answer", in: .asking) }
        return answers
    }

    public func query(_ sql: String, _ parameters: [String?] = []) throws(PostgresError) -> Rows {
        guard let answer = try pipeline([PipelinedStatement(sql, parameters)]).first else {
            throw PolicySession.unreadable
        }
        return try answer.get()
    }

    /// Creates a function in `pg_temp`. Returns the error code if PostgreSQL refuses; nil after success.
    public func make(function text: String) throws(PostgresError) -> String? {
        let answers = try pipeline([
            PipelinedStatement("BEGIN READ WRITE"), PipelinedStatement(text), PipelinedStatement("COMMIT"),
        ])
        if case .failure(let error) = answers[1] { return error.sqlState ?? "XX000" }
        return nil
    }

    // MARK: Effects that outlive a transaction

    /// Statement that releases session-level advisory locks and counts prepared statements. A rollback undoes
    /// everything else that functions can set. This statement is not prepared, because a function could replace a
    /// prepared statement by another one with the same name.
    public static let clean = PipelinedStatement(
        """
        SELECT pg_catalog.pg_advisory_unlock_all(), pg_catalog.count(*) FILTER (WHERE s.from_sql),
            pg_catalog.count(*) FILTER (WHERE NOT s.from_sql), (\(roleSettingsText))
        FROM pg_catalog.pg_prepared_statements s
        """)

    /// Query for a text that changes whenever the settings of a database or a role change.
    private static let roleSettingsText = """
        SELECT pg_catalog.string_agg(pg_catalog.concat_ws(':', r.setdatabase, r.setrole, CAST(r.setconfig AS pg_catalog.text)),
            ',' ORDER BY r.setdatabase, r.setrole)
        FROM pg_catalog.pg_db_role_setting r WHERE r.setdatabase = 0 OR r.setdatabase = (
            SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
        """

    /// Error code that the hub reports for a spoiled session: `prohibited_sql_statement_attempted`.
    public static let spoiled = "2F003"

    /// True if the answer of `clean` shows exactly the prepared statements that this object made. If settings of a
    /// database or a role have changed since the session began, throws an error that makes the caller ask in a new
    /// session.
    public func isClean(_ answer: Result<Rows, PostgresError>?) throws(PostgresError) -> Bool {
        if case .success(let rows)? = answer, let row = rows.first, row.count == 4, row[1] == "0",
            row[2] == String(prepared.count)
        {
            guard row[3] == roleSettings else {
                throw PostgresError(
                    operation: "policies", message: "settings of a database or a role are others by now",
                    isConnectionLost: true)
            }
            return true
        }
        if !isSpoiled {
            Log.shared.warning(
                "a function that a policy calls leaves prepared statements in its session: the policy shows no rows")
        }
        isSpoiled = true
        return false
    }

    // MARK: Settings of a client's session

    /// Returns the statement that gives the current transaction the settings of a role, which must have been read
    /// before. With another `search_path`, for example, names in policies would refer to other objects. If the role is
    /// nil, the statement restores the settings with which the session began.
    public func surroundingsStatement(_ role: String?) throws(PostgresError) -> PipelinedStatement {
        guard let values = role == nil ? differences(usual) : role.flatMap({ surroundings[$0] }) else {
            throw .impossible("a role's settings are read before anything is asked as that role", in: .asking)
        }
        return ValueSettings.statement(values, isLocal: true)
    }

    /// Statement that gives the current transaction the settings with which the hub writes and reads texts.
    public var ownSettingsStatement: PipelinedStatement { ValueSettings.statement(ValueSettings.own, isLocal: true) }

    private func differences(_ values: [String: String]) -> [String: String] {
        values.filter { name, value in
            ValueSettings.followed.contains(name) && (ValueSettings.own[name] ?? usual[name]) != value
                || name == "search_path"
        }
    }

    /// Error code that PostgreSQL returns for a role that does not exist: `invalid_parameter_value`.
    public static let noSuchRole = "22023"

    /// Reads the settings of a role. Settings of the role override those of the database, and those of the role in this
    /// database override both.
    ///
    /// Returns false if the role does not exist, or has settings under which policies are not evaluated. Also false for
    /// `none`, which PostgreSQL would read as the login itself.
    public func readSurroundings(of role: String?) throws(PostgresError) -> Bool {
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
            let name = setting[..<end].lowercased()
            if found[name] != nil { found[name] = String(setting[setting.index(after: end)...]) }
        }
        if let unfit = ValueSettings.required.keys.first(where: { !ValueSettings.isUsual($0, found[$0] ?? "") }) {
            Log.shared.warning(
                "a setting of the database or of a role prevents policies from being evaluated: the policies show no rows",
                [.user(role), .setting(unfit)])
            return false
        }
        found["search_path"] = PolicySession.ownFirst(found["search_path"] ?? "")
        surroundings[role] = differences(found)
        return true
    }

    /// Returns the search path with PostgreSQL's own schema first, unless the path names that schema. Unqualified names
    /// in policies then refer to PostgreSQL's own objects.
    private static func ownFirst(_ path: String) -> String {
        path.contains("pg_catalog") ? "pg_catalog, " + path : path
    }
}
