import Diagnostics
import Policy
import Postgres

/// What PostgreSQL makes of a text, as it writes it again: the text becomes a view that nobody will ever see. It is read
/// and resolved for that, never planned or run.
struct ViewTrial: Hashable {
    /// Under this path its names are resolved.
    var searchPath: String
    /// Made before, as `pg_temp` has it: name and definition.
    var companion: Companion?
    /// The view's own query, of which the one column is called `result`.
    var query: String

    struct Companion: Hashable {
        /// Not quoted.
        var name: String
        var query: String
        /// What it is called when the view is written again.
        var finalName: String
    }

    enum Outcome: Hashable {
        /// The view as PostgreSQL writes it with nothing but `pg_catalog` in the path, and its column's type.
        case written(String, type: UInt32)
        /// PostgreSQL does not take it.
        case refused
        /// The hub may not ask.
        case forbidden
        /// It cannot be said for the moment.
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

    /// Throws what says nothing of the text, as a full disk does: the catalog is to be read again then, and nobody judged
    /// by policies that were taken for unreadable meanwhile.
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
        // The last but one, before ROLLBACK.
        guard case .success(let rows)? = answers.dropLast().last, let row = rows.first, let text = row[0],
            let type = row.number(1), row[2] == "1"
        else { return .refused }
        return .written(text, type: type)
    }
}

/// Runs trials, and remembers them for as long as the catalog is the same. One thread's, as the connection is.
final class TrialBench {
    private var known: [ViewTrial: ViewTrial.Outcome] = [:]
    private var validFor = ""
    private var reported: Set<String> = []

    /// Another fingerprint: names may mean something else.
    func begin(_ fingerprint: String) {
        guard fingerprint != validFor else { return }
        validFor = fingerprint
        known = [:]
    }

    /// Whether it is worth a line: once for each text.
    func isNews(_ what: String) -> Bool {
        reported.count < Limits.maximumPolicyReports && reported.insert(what).inserted
    }

    /// Each outcome in its trial's place.
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
            // Schemas are open to the client roles that are not open to the hub itself.
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
    /// Roles that the hub may act as, to whom schemas may be open: never those that are above row level security.
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
