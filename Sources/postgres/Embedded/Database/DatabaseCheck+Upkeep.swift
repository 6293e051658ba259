import Postgres

/// Checks of the hub's own functions in the database, and of the login for policies.
extension DatabaseCheck {
    func upkeep() throws(PostgresError) -> [Requirement] {
        try [
            ("add_channel_probes(text[], text[], uuid[])", "private channels are refused"),
            (
                "keep_messages(integer)",
                "the hub cannot create the partition of each day, unless its login owns the table"
            ),
        ].map { (signature, loss) throws(PostgresError) in try function(signature, without: loss) }
    }

    private func function(_ signature: String, without loss: String) throws(PostgresError) -> Requirement {
        let name = "tidewire.\(signature)"
        let rows = try ask(
            """
            SELECT p.prosecdef, pg_get_userbyid(p.proowner), (
                    SELECT pg_get_userbyid(c.relowner) FROM pg_catalog.pg_class c
                    JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace
                    WHERE s.nspname = 'realtime' AND c.relname = 'messages'),
                has_schema_privilege(n.oid, 'USAGE') AND has_function_privilege(p.oid, 'EXECUTE'),
                EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname IN ('anon', 'authenticated', 'service_role')
                    AND NOT r.rolsuper AND has_schema_privilege(r.oid, n.oid, 'USAGE')
                    AND has_function_privilege(r.oid, p.oid, 'EXECUTE'))
            FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
            WHERE n.nspname = 'tidewire' AND format('%s(%s)', p.proname, oidvectortypes(p.proargtypes)) = $1
            """, [signature])
        let hint = "as a superuser, or as the owner of realtime.messages: \(DatabaseCheck.apply)"
        guard let row = rows.first else {
            return .missing(.upkeep, name, "does not exist: \(loss)", hint: hint)
        }
        guard row[0] == "t", row[1] == row[2] else {
            return .wrong(.upkeep, name, "does not run as the owner of realtime.messages", hint: hint)
        }
        guard row[3] == "t" else {
            return .wrong(.upkeep, name, "may not be called by this login: \(loss)", hint: hint)
        }
        guard row[4] == "f" else {
            return .wrong(
                .upkeep, name, "may be called by client roles",
                sql: "REVOKE ALL ON FUNCTION \(name) FROM PUBLIC, anon, authenticated, service_role;")
        }
        return .ok(.upkeep, name, "exists")
    }

    // MARK: The login for policies

    func policies() throws(PostgresError) -> [Requirement] {
        guard let target = settings.policies else {
            return [
                .missing(
                    .policies, "policy_database_url",
                    "is not set: policies run with the hub's login, if it can become the client roles and "
                        + "nothing else", isRequired: false,
                    hint: "set it to an address with the login of sql/045_policy_role.sql")
            ]
        }
        let other: Connection
        do throws(PostgresError) {
            other = try Connection(target, applicationName: "tidewire doctor")
        } catch {
            return [
                .wrong(
                    .policies, "policy_database_url", error.message,
                    hint: error.hint ?? "give the role a password (\\password) and allow it in pg_hba.conf")
            ]
        }
        return try examine(other)
    }

    private func examine(_ other: Connection) throws(PostgresError) -> [Requirement] {
        let rows = try other.query(
            """
            SELECT me.rolname, concat_ws(', ',
                CASE WHEN me.rolsuper THEN 'is a superuser' END,
                CASE WHEN me.rolbypassrls THEN 'bypasses row level security' END,
                CASE WHEN me.rolreplication THEN 'may make replication slots' END,
                CASE WHEN me.rolcreaterole THEN 'may create roles' END,
                (SELECT 'can become ' || string_agg(r.rolname, ', ') FROM pg_catalog.pg_roles r
                 WHERE r.oid <> me.oid AND NOT me.rolsuper AND pg_catalog.pg_has_role(me.oid, r.oid, 'MEMBER')
                    AND (r.rolsuper OR r.rolbypassrls OR r.rolname = 'service_role'))),
                (SELECT count(*) FROM pg_catalog.pg_roles r WHERE r.rolname IN ('anon', 'authenticated')
                    AND pg_catalog.pg_has_role(me.oid, r.oid, '\(becoming)')), current_database()
            FROM pg_catalog.pg_roles me WHERE me.rolname = session_user
            """
        ).values
        guard let row = rows.first, let name = row[0] else { return [] }
        let here = try ask("SELECT current_database()").first?[0]
        if let here, row[3] != here {
            return [
                .wrong(
                    .policies, "policy_database_url", "leads to database \(row[3] ?? ""), not to \(here)",
                    hint: "policies must run in the database that the hub follows")
            ]
        }
        if let excess = row[1], !excess.isEmpty {
            return [
                .wrong(
                    .policies, name, excess,
                    hint: "the hub runs no policy with such a login: use the login of sql/045_policy_role.sql")
            ]
        }
        guard row[2] == "2" else {
            return [
                .wrong(
                    .policies, name, "cannot become anon and authenticated",
                    sql: "GRANT anon, authenticated TO \(Quoted.identifier(name));")
            ]
        }
        return [.ok(.policies, name, "can become anon and authenticated, and nothing else")]
    }
}
