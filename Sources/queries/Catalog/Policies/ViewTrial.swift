import Diagnostics
import Policy
import Postgres

/// Query that PostgreSQL parses and prints again, which shows how PostgreSQL reads it. The hub creates a temporary view
/// of the query, reads the view's text, and rolls back. PostgreSQL never plans or runs the query.
struct ViewTrial: Hashable {
    /// Search path with which PostgreSQL resolves the names in the query.
    var searchPath: String
    /// Second view in `pg_temp` whose columns stand for a function's arguments; nil if there is none.
    var companion: Companion?
    /// Query of the view. Its only column must have the name `result`.
    var query: String

    struct Companion: Hashable {
        /// Unquoted name of the view while the query is parsed.
        var name: String
        var query: String
        /// Name of the view in the printed text.
        var finalName: String
    }

    enum Outcome: Hashable {
        /// The view's text as PostgreSQL prints it with only `pg_catalog` in the search path, and the type of its
        /// column.
        case written(String, type: UInt32)
        /// PostgreSQL rejects the query.
        case refused
        /// The hub has no right to ask, for example because it may not create temporary views.
        case forbidden
        /// PostgreSQL cannot answer now, because of a lock or a timeout.
        case busy
    }

    fileprivate func statements(as role: String?) -> [PipelinedStatement] {
        var statements = [PipelinedStatement("BEGIN READ WRITE")]
        if let role { statements.append(PipelinedStatement("SET LOCAL ROLE \(Quoted.identifier(role))")) }
        statements.append(
            PipelinedStatement(
                "SELECT set_config('lock_timeout', $1, true), set_config('search_path', $2, true)",
                [
                    String(Limits.policyLockTimeout.wholeMilliseconds),
                    searchPath + (searchPath.isEmpty ? "" : ", ") + "pg_temp",
                ]))
        if let companion {
            let name = "pg_temp." + Quoted.identifier(companion.name)
            statements.append(PipelinedStatement("CREATE TEMP VIEW \(name) AS \(companion.query)"))
            statements.append(PipelinedStatement("CREATE TEMP VIEW pg_temp.tidewire_trial AS \(query) FROM \(name)"))
            if companion.name != companion.finalName {
                statements.append(
                    PipelinedStatement("ALTER VIEW \(name) RENAME TO \(Quoted.identifier(companion.finalName))"))
            }
        } else {
            statements.append(PipelinedStatement("CREATE TEMP VIEW pg_temp.tidewire_trial AS \(query)"))
        }
        statements.append(PipelinedStatement("SELECT set_config('search_path', 'pg_catalog', true)"))
        statements.append(PipelinedStatement(ViewTrial.readText))
        statements.append(PipelinedStatement("ROLLBACK"))
        return statements
    }

    private static let readText = """
        SELECT pg_get_viewdef(a.attrelid), a.atttypid, (SELECT count(*) FROM pg_attribute b WHERE b.attrelid = a.attrelid)
        FROM pg_attribute a WHERE a.attrelid = 'pg_temp.tidewire_trial'::regclass AND a.attnum = 1
        """

    /// Returns the trial's outcome. Throws an error that is not caused by the text, such as a full disk. The caller
    /// then reads the catalog again, so that the policy does not count as unreadable.
    fileprivate static func outcome(
        _ answers: ArraySlice<Result<Rows, PostgresError>>
    ) throws(PostgresError) -> Outcome {
        for case .failure(let error) in answers {
            switch error.sqlState {
            case SQLState.insufficientPrivilege, "25006": return .forbidden
            case "55P03", SQLState.queryCanceled: return .busy
            case let state? where SQLState.isPassing(state): throw error
            default: return .refused
            }
        }
        // The last answer but one. The last is that of ROLLBACK.
        guard case .success(let rows)? = answers.dropLast().last, let row = rows.first, let text = row[0],
            let type = row.number(1), row[2] == "1"
        else { return .refused }
        return .written(text, type: type)
    }
}

/// Runner of view trials. It caches outcomes for as long as the catalog is unchanged. Only the thread that owns the
/// connection uses it.
final class TrialBench {
    private var known: [ViewTrial: ViewTrial.Outcome] = [:]
    private var validFor = ""
    private var reported = LoggedOnce(
        atMost: Limits.maximumPolicyReports, ending: "the log names no further problems of policies")

    /// Clears the cache if the fingerprint has changed, because names may then have other meanings.
    func begin(_ fingerprint: String) {
        guard fingerprint != validFor else { return }
        validFor = fingerprint
        known = [:]
    }

    /// True the first time that it is called with this text, so that the caller logs each text only once. Always false
    /// once the maximum number of reports is reached, which the log says.
    func isNews(_ what: String) -> Bool { reported.isNews(what) }

    /// Returns the outcome of each trial. Trials that the cache lacks are run.
    func outcomes(
        _ trials: [ViewTrial], _ reader: CatalogReader
    ) throws(PostgresError) -> [ViewTrial: ViewTrial.Outcome] {
        var rest = Set(trials).filter { known[$0] == nil }
        var temporary: [ViewTrial: ViewTrial.Outcome] = [:]
        var roles: [String?] = [nil]
        var next = 0
        while !rest.isEmpty, next < roles.count {
            let role = roles[next]
            next += 1
            for (trial, outcome) in try run(Array(rest), as: role, reader) where outcome != .forbidden {
                rest.remove(trial)
                if outcome == .busy { temporary[trial] = outcome } else { known[trial] = outcome }
            }
            // Some schemas are accessible to client roles but not to the hub's login.
            if role == nil, !rest.isEmpty { roles += try reader.rolesToAct() }
        }
        for trial in rest { known[trial] = .forbidden }
        return Dictionary(
            trials.map { ($0, known[$0] ?? temporary[$0] ?? .refused) }, uniquingKeysWith: { first, _ in first })
    }

    private func run(
        _ trials: [ViewTrial], as role: String?, _ reader: CatalogReader
    ) throws(PostgresError) -> [(ViewTrial, ViewTrial.Outcome)] {
        var outcomes: [(ViewTrial, ViewTrial.Outcome)] = []
        var rest = trials[...]
        while !rest.isEmpty {
            let batch = rest.prefix(Limits.policyTrialBatch)
            rest = rest.dropFirst(batch.count)
            let statements = batch.map { $0.statements(as: role) }
            let answers = try reader.ask(Array(statements.joined()))
            var place = 0
            for (trial, statements) in zip(batch, statements) {
                outcomes.append((trial, try ViewTrial.outcome(answers[place..<(place + statements.count)])))
                place += statements.count
            }
        }
        return outcomes
    }
}

extension CatalogReader {
    /// Returns roles to which the hub may switch. Superusers and roles with BYPASSRLS are excluded.
    fileprivate func rolesToAct() throws(PostgresError) -> [String?] {
        let rows = try query(
            """
            SELECT r.rolname FROM pg_roles r
            WHERE pg_has_role(r.oid, 'MEMBER') AND r.rolname <> current_user AND NOT r.rolsuper AND NOT r.rolbypassrls
                AND r.rolname NOT LIKE 'pg\\_%'
            ORDER BY r.rolname LIMIT 8
            """)
        return rows.values.map { $0[0] }
    }
}
