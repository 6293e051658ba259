import Postgres

/// Check that a login may safely run policies. A function that a policy calls runs in the login's session, and can
/// become any role that the login can become.
public struct JudgingLogin {
    /// Returns the defect of the login, or `.available`.
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
        // Even in a read-only transaction the login could create a slot and read every change of the database.
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

    /// Returns the privilege with which a member can become a role. Since PostgreSQL 16 a grant may leave it out.
    public static func becoming(serverVersion: Int) -> String { serverVersion >= 160_000 ? "SET" : "MEMBER" }

    /// Query for: name; superuser; bypasses RLS; a role it can become that no policy binds; owner of tables; may create
    /// roles; can become a client role; may replicate.
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
