import Embedded
import Policy
import Postgres
import System
import TestSupport
import Testing

@testable import Catalog
@testable import Judging

/// Database with a client role, the documented logins, `auth.uid()`, and an evaluator of policies.
final class JudgingStage {
    let database: TestDatabase
    /// Client role that only this stage uses, because roles belong to the whole cluster.
    let role: String
    let logins: DocumentedLogins
    private let hub: ConnectionTarget
    private var judges: [PolicyEvaluator] = []

    init(on cluster: PrivateCluster? = nil, _ sql: String = "") throws {
        database = try TestDatabase(on: cluster)
        role = "reader_" + database.name
        try database.run("CREATE ROLE \(role) NOLOGIN NOINHERIT")
        logins = try database.documentedLogins(becoming: [role])
        hub = logins.hub
        try database.run(
            """
            CREATE SCHEMA auth;
            GRANT USAGE ON SCHEMA auth, public TO \(role);
            CREATE FUNCTION auth.uid() RETURNS uuid LANGUAGE sql STABLE AS $$
                SELECT (nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'sub')::uuid $$;
            """)
        if !sql.isEmpty { try run(sql) }
    }

    deinit { for judge in judges { judge.stop() } }

    /// Runs SQL in which `READER` stands for the client role and `HUB` for the hub's own login.
    func run(_ sql: String) throws {
        try database.run(sql.replacing("READER", with: role).replacing("HUB", with: logins.hubName))
    }

    /// Name of the login that policies run as.
    var login: String { logins.policyName }

    func judge(policies: ConnectionTarget? = nil) throws -> PolicyEvaluator {
        var settings = PolicyEvaluator.Settings(database: hub, policies: policies ?? logins.policies)
        settings.clientRoles = [role]
        let judge = try PolicyEvaluator(settings)
        judges.append(judge)
        return judge
    }

    /// Advances the version of the definitions, as the catalog's thread does when they may have changed.
    func definitionsHaveChanged() { hub.definitions.advance() }

    /// Returns an evaluator that has only the hub's own login.
    func judgeAlone(_ target: ConnectionTarget) throws -> PolicyEvaluator {
        var settings = PolicyEvaluator.Settings(database: target)
        settings.clientRoles = [role]
        let judge = try PolicyEvaluator(settings)
        judges.append(judge)
        return judge
    }

    /// Returns a policy that only the test has, on rows of a table `notes` with these columns. Creates the table if it
    /// is missing.
    func judged(_ sql: String, _ columns: [(String, String)] = [("id", "bigint")]) throws -> JudgedPolicy {
        JudgedPolicy(role: role, row: try row(columns), table: 1, sql: sql, version: 1)
    }

    func row(_ columns: [(String, String)]) throws -> JudgedRow {
        let definitions = columns.map { "\($0.0) \($0.1)" }.joined(separator: ", ")
        let schema = "judged\(columns.count)"
        try database.run("CREATE SCHEMA IF NOT EXISTS \(schema); GRANT USAGE ON SCHEMA \(schema) TO PUBLIC")
        try database.run("CREATE TABLE IF NOT EXISTS \(schema).notes (\(definitions))")
        return JudgedRow(
            relation: "notes", schema: schema,
            columns: columns.enumerated().map { JudgedRow.Column(slot: $0, name: $1.0, type: $1.1) })
    }

    /// Returns the table's only policy, over all its columns.
    func policy(of table: String) throws -> JudgedPolicy {
        let connection = try database.cluster.connect(database: database.name)
        try connection.execute("SET search_path = pg_catalog")
        let sql = try #require(
            try connection.query(
                "SELECT pg_get_expr(polqual, polrelid) FROM pg_policy WHERE polrelid = $1::regclass",
                ["public." + table]
            ).first?.first ?? nil)
        return JudgedPolicy(role: role, row: try row(of: table), table: 1, sql: sql, version: 1)
    }

    /// Returns a row of the table with its current columns.
    func row(of table: String) throws -> JudgedRow {
        let columns = try database.connection.query(
            """
            SELECT a.attname, pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(t.typname)
            FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid JOIN pg_namespace n ON n.oid = t.typnamespace
            WHERE a.attrelid = $1::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
            """, ["public." + table])
        return JudgedRow(
            relation: table, schema: "public",
            columns: columns.values.enumerated().map { index, row in
                JudgedRow.Column(slot: index, name: row[0] ?? "", type: row[1] ?? "")
            })
    }

    func subject(_ claims: String, role: String? = nil) -> PolicySubject {
        PolicySubject(role: role ?? self.role, claims: claims, identity: 0)
    }

    func subject(sub: Int) -> PolicySubject { subject(#"{"sub": "\#(SampleUUID.text(sub))"}"#) }

    /// Returns one result for each row, in the order of keys: true if a query of the table shows the row to the
    /// subject.
    func shown(_ table: String, to subject: PolicySubject) throws -> [Bool?] {
        let connection = try database.cluster.connect(database: database.name)
        let all = try connection.query("SELECT id FROM public.\(table) ORDER BY id").values.map { $0[0] ?? "" }
        return all.map { id in
            do {
                _ = try connection.query("BEGIN")
                defer { _ = try? connection.query("ROLLBACK") }
                _ = try connection.query("SELECT set_config('request.jwt.claims', $1, true)", [subject.claims])
                _ = try connection.query("SELECT set_config('role', $1, true)", [subject.role])
                return try !connection.query("SELECT 1 FROM public.\(table) WHERE id = $1", [id]).isEmpty
            } catch {
                return nil
            }
        }
    }

    func rows(of table: String) throws -> [[String?]] {
        try database.connection.query("SELECT * FROM public.\(table) ORDER BY id").values
    }
}

extension PolicyEvaluator {
    /// Asks, waits, and returns the answers for each row and subject.
    func answers(
        _ policy: JudgedPolicy, _ rows: [[String?]], _ subjects: [PolicySubject], seeing xid: UInt32? = nil
    ) -> [[Bool?]] {
        let found = Awaited<[PolicyAnswers]>()
        ask([PolicyQuestion(policy, rows: rows, subjects: subjects)], seeing: xid) { found.set($0) }
        guard let answers = found.wait()?.first else { return [] }
        return rows.indices.map { row in subjects.indices.map { answers[row, $0] } }
    }

    func value(_ terms: [AskedTerm], _ subject: PolicySubject) -> [AskedTerm: AskedAnswer]? {
        let found = Awaited<[AskedTerm: AskedAnswer]?>()
        evaluate(terms, as: subject) { found.set($0) }
        return found.wait() ?? nil
    }

    func fills(_ asked: [(Membership, PolicySubject)], seeing xid: UInt32? = nil) -> [MembershipFill] {
        let found = Awaited<[MembershipFill]>()
        fill(asked.map { (membership: $0.0, subject: $0.1) }, seeing: xid) { found.set($0) }
        return found.wait() ?? []
    }
}
