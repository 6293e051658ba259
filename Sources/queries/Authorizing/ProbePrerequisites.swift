import Asking
import Postgres

/// Checks that the database has the objects that probes need, and that roles have the rights to them. A probe is a
/// trial action in a private channel.
enum ProbePrerequisites {
    /// Returns how the login can insert the rows that probes try to read. Fails, with a remedy for the operator, if it
    /// cannot.
    static func examine(_ session: PolicySession) throws(PostgresError) -> Result<ProbeScript.Insertion, Unprepared> {
        let row = try session.query(question).first ?? []
        guard row.count == 3 else { throw PolicySession.unreadable }
        guard row[0] == "t" else {
            return .failure(Unprepared(reason: "the table realtime.messages is missing", hint: apply))
        }
        guard session.mayMakeFunctions else {
            return .failure(
                Unprepared(
                    reason: "the login for policies may not make temporary functions",
                    hint: "GRANT TEMPORARY ON DATABASE … TO the login of policy_database_url; " + apply))
        }
        if row[2] == "t" { return .success(.directly) }
        if row[1] == "t" { return .success(.byFunction) }
        return .failure(
            Unprepared(
                reason: "the login for policies may not execute tidewire.add_channel_probes(text[], text[], uuid[])",
                hint: apply))
    }

    /// Reason why no rights can be determined, with a remedy, for an operator.
    struct Unprepared: Error, Sendable, Equatable {
        var reason: String
        var hint: String

        /// Reason reported when a probe fails although the objects that it needs existed when they were examined.
        static let changed = Unprepared(reason: "probes cannot be put into realtime.messages", hint: apply)
    }

    private static let apply = "`tidewire db apply` makes what is missing"

    /// Query with these results: the table exists; the login may call the inserting function; the login may insert rows
    /// itself and no policy applies to it.
    private static let question = """
        SELECT m.oid IS NOT NULL,
            COALESCE(pg_catalog.has_schema_privilege(p.pronamespace, 'USAGE')
                AND pg_catalog.has_function_privilege(p.oid, 'EXECUTE'), false),
            COALESCE(pg_catalog.has_schema_privilege(m.relnamespace, 'USAGE')
                AND pg_catalog.has_table_privilege(m.oid, 'INSERT')
                AND NOT pg_catalog.row_security_active(m.oid), false)
        FROM (SELECT 1) AS one (one)
            LEFT JOIN (pg_catalog.pg_class m JOIN pg_catalog.pg_namespace n
                ON n.oid = m.relnamespace AND n.nspname = 'realtime' AND m.relname = 'messages'
                    AND m.relkind IN ('r', 'p')) ON true
            LEFT JOIN (pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace o
                ON o.oid = p.pronamespace AND o.nspname = 'tidewire' AND p.proname = 'add_channel_probes'
                    AND pg_catalog.oidvectortypes(p.proargtypes) = 'text[], text[], uuid[]') ON true
        """

    /// Relation of a role to the login that runs probes.
    enum Standing: Equatable {
        /// The login can switch to the role, so it probes as the role.
        case probed
        /// No policy applies to the role and the login may not switch to it. The role's privileges alone decide.
        case privileged(mayRead: Bool, mayWrite: Bool)
        /// The role does not exist, or the login may not switch to it.
        case refused
    }

    /// Returns how the rights of the role can be determined.
    static func standing(of role: String, _ session: PolicySession) throws(PostgresError) -> Standing {
        guard let row = try session.query(standingQuestion(session.serverVersion), [role]).first, row.count == 4 else {
            return .refused
        }
        if row[0] == "t" { return .probed }
        return row[1] == "t" ? .privileged(mayRead: row[2] == "t", mayWrite: row[3] == "t") : .refused
    }

    /// Returns a query with these results: the login can switch to the role; no policy applies to the role; the role
    /// may SELECT the column `id`; the role may INSERT the columns of a probe.
    private static func standingQuestion(_ serverVersion: Int) -> String {
        // Since PostgreSQL 16, a membership may lack the right to switch to the role.
        let becoming = serverVersion >= 160_000 ? "SET" : "MEMBER"
        let columns = ["topic", "extension", "inserted_at", "updated_at"]
        let mayInsert = columns.map { "pg_catalog.has_column_privilege(r.oid, m.oid, '\($0)', 'INSERT')" }
        return """
            SELECT r.rolname <> session_user AND pg_catalog.pg_has_role(session_user, r.oid, '\(becoming)'),
                r.rolsuper OR r.rolbypassrls,
                pg_catalog.has_schema_privilege(r.oid, n.oid, 'USAGE')
                    AND pg_catalog.has_column_privilege(r.oid, m.oid, 'id', 'SELECT'),
                pg_catalog.has_schema_privilege(r.oid, n.oid, 'USAGE') AND \(mayInsert.joined(separator: " AND "))
            FROM pg_catalog.pg_roles r, pg_catalog.pg_class m
                JOIN pg_catalog.pg_namespace n ON n.oid = m.relnamespace
            WHERE r.rolname = $1 AND n.nspname = 'realtime' AND m.relname = 'messages' AND m.relkind IN ('r', 'p')
            """
    }
}
