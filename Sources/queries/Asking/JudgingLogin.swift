import Postgres

/// Check that a login is safe for running policies. A function that a policy calls runs in the login's session and can
/// switch to every role that the login can.
public struct JudgingLogin {
    /// Returns `.available`, or the reason why the login must not run policies.
    public static func examine(
        _ session: PolicySession, clientRoles: [String]
    ) throws(PostgresError) -> PolicyAvailability {
        let rows = try session.query(
            question(serverVersion: session.serverVersion), [TextArray.literal(clientRoles[...])])
        guard let row = rows.first, row.count == 8, let name = row[0] else { return .unknown }
        let login = Quoted.identifier(name)
        if row[1] == "t" { return refused("\(login) is a superuser", own) }
        if row[2] == "t" { return refused("\(login) bypasses row level security", own) }
        if let role = row[3] {
            return refused(
                "\(login) can become \(Quoted.identifier(role)), which no policy binds",
                "REVOKE \(Quoted.identifier(role)) FROM \(login), or " + own)
        }
        if row[4] == "t" { return refused("\(login) owns tables, or can become a role that does", own) }
        if row[5] == "t" { return refused("\(login) may create roles", "ALTER ROLE \(login) NOCREATEROLE, or " + own) }
        // Even in a read-only transaction, the login could create a replication slot and read all changes of the
        // database.
        if row[7] == "t" {
            return refused("\(login) may make replication slots, and so could functions that policies call", own)
        }
        if row[6] != "t" {
            let roles = clientRoles.map { Quoted.identifier($0) }.joined(separator: ", ")
            return refused("\(login) can become none of the client roles", "GRANT \(roles) TO \(login)")
        }
        return .available
    }

    private static let own =
        "give policy_database_url (TIDEWIRE_POLICY_DATABASE_URL) a login like that of sql/045_policy_role.sql"

    private static func refused(_ reason: String, _ hint: String) -> PolicyAvailability {
        .refused(reason: reason, hint: hint)
    }

    /// Returns the privilege that a login needs to switch to a role. Since PostgreSQL 16, a membership may lack it.
    public static func becoming(serverVersion: Int) -> String { serverVersion >= 160_000 ? "SET" : "MEMBER" }

    /// Returns a query with these results: name of the login; is superuser; bypasses RLS; a role it can switch to and
    /// that policies do not apply to; owns tables; may create roles; can switch to a client role; may replicate.
    private static func question(serverVersion: Int) -> String {
        let becoming = becoming(serverVersion: serverVersion)
        return """
            SELECT me.rolname, me.rolsuper, me.rolbypassrls,
                (SELECT r.rolname FROM pg_catalog.pg_roles r
                 WHERE r.oid <> me.oid AND pg_catalog.pg_has_role(me.oid, r.oid, 'MEMBER')
                    AND (r.rolsuper OR r.rolbypassrls OR r.rolname = ANY ('{service_role,pg_read_all_data,
                        pg_write_all_data,pg_read_server_files,pg_write_server_files,pg_execute_server_program}'))
                 ORDER BY r.rolname LIMIT 1),
                EXISTS (SELECT 1 FROM pg_catalog.pg_class c
                    WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
                        AND pg_catalog.pg_has_role(me.oid, c.relowner, 'MEMBER')
                        AND pg_catalog.pg_get_userbyid(c.relowner) <> ALL ($1::text[])),
                me.rolcreaterole,
                EXISTS (SELECT 1 FROM pg_catalog.pg_roles r
                    WHERE r.rolname = ANY ($1::text[]) AND pg_catalog.pg_has_role(me.oid, r.oid, '\(becoming)')),
                me.rolreplication
            FROM pg_catalog.pg_roles me WHERE me.rolname = session_user
            """
    }
}
