import Diagnostics
import Policy
import Postgres
import System

/// A connection on which what policies say is run, one transaction after the other, each of them rolled back.
///
/// It belongs to one thread. It knows what a client's session of a role is set to, and finds out whether a function that a
/// policy calls left something behind that no rollback undoes.
public final class PolicySession {
    /// What a client's session of a role is set to.
    private struct Surroundings {
        var searchPath: String
        var timeZone: String
    }

    public let connection: Connection
    private let interrupt: Wake
    private let answerMilliseconds: Int
    /// In `pg_temp`, which takes a privilege and a database that can be written.
    public let mayMakeFunctions: Bool
    private let usual: Surroundings
    private var surroundings: [String: Surroundings] = [:]
    private var prepared: Set<String> = []
    /// A policy's function left something in the session that outlives its transaction: what is asked next might be
    /// answered by that function.
    public private(set) var isSpoiled = false

    public init(
        _ target: ConnectionTarget, applicationName: String, settings: [String], connectTimeout: Duration,
        answerTimeout: Duration, interrupt: Wake
    ) throws(PostgresError) {
        connection = try Connection(
            target, applicationName: applicationName, timeoutSeconds: connectTimeout.wholeSeconds,
            settings: settings + [
                "standard_conforming_strings=on",
                // The same statement for other values: a plan made once serves all.
                "plan_cache_mode=force_generic_plan", "jit=off",
            ], keepsTimeZone: true, interrupt: interrupt)
        connection.ignoreNotices()
        self.interrupt = interrupt
        answerMilliseconds = answerTimeout.wholeMilliseconds
        var none: Set<String> = []
        let rows = try connection.pipeline(
            [
                PipelinedStatement(
                    """
                    SELECT pg_catalog.current_setting('search_path'), pg_catalog.current_setting('TimeZone'),
                        pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMPORARY')
                            AND NOT pg_catalog.pg_is_in_recovery()
                    """),
                // What is asked below means PostgreSQL's own.
                PipelinedStatement("SELECT pg_catalog.set_config('search_path', 'pg_catalog', false)"),
            ], prepared: &none, timeoutMilliseconds: answerMilliseconds, interrupt: interrupt)
        let found = try rows[0].get().first ?? []
        _ = try rows[1].get()
        guard found.count == 3, let path = found[0], let zone = found[1] else { throw PolicySession.unreadable }
        usual = Surroundings(searchPath: path, timeZone: zone)
        mayMakeFunctions = found[2] == "t"
    }

    public static let unreadable = PostgresError(operation: "policies", message: "settings cannot be read")

    public var place: String { connection.place }
    public var serverVersion: Int { connection.serverVersion }

    // MARK: Asking

    /// Asked now and then while an answer is waited for: what nobody wants any more is given up, and the session with it.
    public var isStillWanted: (() -> Bool)? {
        get { connection.isStillWanted }
        set { connection.isStillWanted = newValue }
    }

    /// The rows of one statement, one after the other; see `Connection`.
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

    /// Makes a function in `pg_temp`; the code of the error where it cannot be made.
    public func make(function text: String) throws(PostgresError) -> String? {
        let answers = try pipeline([
            PipelinedStatement("BEGIN READ WRITE"), PipelinedStatement(text), PipelinedStatement("COMMIT"),
        ])
        if case .failure(let error) = answers[1] { return error.sqlState ?? "XX000" }
        return nil
    }

    // MARK: What outlives a transaction

    /// What functions set for the session goes with what they set for the transaction, when it is rolled back; but for
    /// locks that they took for the session, and for statements: a function can take a prepared one away and leave another
    /// of that name. So this one, which comes last, has no name.
    public static let clean = PipelinedStatement(
        """
        SELECT pg_catalog.pg_advisory_unlock_all(), pg_catalog.count(*) FILTER (WHERE s.from_sql),
            pg_catalog.count(*) FILTER (WHERE NOT s.from_sql)
        FROM pg_catalog.pg_prepared_statements s
        """)

    /// `prohibited_sql_statement_attempted`.
    public static let spoiled = "2F003"

    /// Whether the session has the statements that were prepared here, and no others.
    public func isClean(_ answer: Result<Rows, PostgresError>?) -> Bool {
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

    // MARK: What a client's session is set to

    /// For the transaction it is in. What a role's session is set to was read before: under another path, names in policies
    /// would mean something else.
    public func surroundingsStatement(_ role: String?) throws(PostgresError) -> PipelinedStatement {
        guard let surroundings = role == nil ? usual : role.flatMap({ self.surroundings[$0] }) else {
            throw .impossible("a role's settings are read before anything is asked as that role", in: .asking)
        }
        return PipelinedStatement(
            "SELECT pg_catalog.set_config('search_path', $1, true), pg_catalog.set_config('TimeZone', $2, true)",
            [surroundings.searchPath, surroundings.timeZone], preparedAs: "surroundings")
    }

    /// `invalid_parameter_value`, as PostgreSQL says it of a role that does not exist.
    public static let noSuchRole = "22023"

    /// As the database and the role say it, the role in this database before all. False where there is no such role:
    /// `none` is a word that PostgreSQL takes, and means the login, which is nobody's role either.
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
            let value = String(setting[setting.index(after: end)...])
            switch setting[..<end].lowercased() {
            case "search_path": found.searchPath = value
            case "timezone": found.timeZone = value
            default: continue
            }
        }
        found.searchPath = PolicySession.ownFirst(found.searchPath)
        surroundings[role] = found
        return true
    }

    /// Unqualified names in policies mean PostgreSQL's own: those come first unless a path says otherwise.
    private static func ownFirst(_ path: String) -> String {
        path.contains("pg_catalog") ? "pg_catalog, " + path : path
    }
}
