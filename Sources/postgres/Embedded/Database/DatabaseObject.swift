import Postgres

/// Object in a database that an installation may create: a schema, a role, a table, or a privilege.
public struct DatabaseObject: Hashable, Sendable, CustomStringConvertible {
    public let kind: String
    public let name: String

    public var description: String { "\(kind) \(name)" }
}

/// Inventory of a database's objects with the state of each. Comparing two inventories shows which objects were created
/// or changed.
struct DatabaseInventory {
    private let states: [DatabaseObject: String]

    init(_ connection: Connection) throws(PostgresError) {
        var states: [DatabaseObject: String] = [:]
        for row in try connection.query(DatabaseInventory.question).values {
            guard let kind = row[0], let name = row[1] else { continue }
            states[DatabaseObject(kind: kind, name: name)] = row[2] ?? ""
        }
        self.states = states
    }

    func made(since before: DatabaseInventory) -> [DatabaseObject] {
        sorted(states.keys.filter { before.states[$0] == nil })
    }

    func changed(since before: DatabaseInventory) -> [DatabaseObject] {
        sorted(states.keys.filter { before.states[$0] != nil && before.states[$0] != states[$0] })
    }

    private func sorted(_ objects: some Sequence<DatabaseObject>) -> [DatabaseObject] {
        objects.sorted { ($0.kind, $0.name) < ($1.kind, $1.name) }
    }

    /// Query for kind, name and state of objects; the state includes owner and rights. PostgreSQL's own objects are
    /// left out.
    private static let question = """
        WITH spaces AS (
            SELECT oid, nspname, nspowner, nspacl FROM pg_catalog.pg_namespace
            WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'
        )
        SELECT 'schema', quote_ident(nspname), nspowner::text || coalesce(nspacl::text, '') FROM spaces
        UNION ALL
        SELECT 'role', quote_ident(rolname), concat_ws(' ', rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin,
            rolreplication, rolbypassrls, rolconfig::text)
        FROM pg_catalog.pg_roles
        UNION ALL
        SELECT 'membership', format('of %I in %I', pg_get_userbyid(member), pg_get_userbyid(roleid)), ''
        FROM pg_catalog.pg_auth_members
        UNION ALL
        SELECT CASE c.relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' WHEN 'S' THEN 'sequence' ELSE 'table' END,
            format('%I.%I', s.nspname, c.relname),
            concat_ws(' ', c.relowner, c.relacl::text, c.relrowsecurity, c.relforcerowsecurity, c.relreplident)
        FROM pg_catalog.pg_class c JOIN spaces s ON s.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f')
        UNION ALL
        SELECT 'function', format('%I.%I(%s)', s.nspname, p.proname, oidvectortypes(p.proargtypes)),
            concat_ws(' ', p.proowner, p.proacl::text, p.prosecdef, p.provolatile, p.proconfig::text, md5(p.prosrc))
        FROM pg_catalog.pg_proc p JOIN spaces s ON s.oid = p.pronamespace
        UNION ALL
        SELECT 'type', format('%I.%I', s.nspname, t.typname), concat_ws(' ', t.typowner, t.typacl::text)
        FROM pg_catalog.pg_type t JOIN spaces s ON s.oid = t.typnamespace
        LEFT JOIN pg_catalog.pg_class c ON c.oid = t.typrelid
        WHERE t.typtype IN ('e', 'd', 'r') OR c.relkind = 'c'
        UNION ALL
        SELECT 'publication', quote_ident(pubname), concat_ws(' ', pubowner, puballtables, pubinsert, pubupdate, pubdelete)
        FROM pg_catalog.pg_publication
        UNION ALL
        SELECT 'publication entry', format('%I: %s', p.pubname, r.prrelid::regclass), ''
        FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid
        UNION ALL
        SELECT 'policy', format('%I on %s', polname, polrelid::regclass), '' FROM pg_catalog.pg_policy
        UNION ALL
        SELECT 'trigger', format('%I on %s', tgname, tgrelid::regclass), tgenabled::text
        FROM pg_catalog.pg_trigger WHERE NOT tgisinternal
        UNION ALL
        SELECT 'event trigger', quote_ident(evtname), evtenabled::text FROM pg_catalog.pg_event_trigger
        UNION ALL
        SELECT 'default rights', format('of %I%s', pg_get_userbyid(d.defaclrole),
                coalesce(' in schema ' || quote_ident(s.nspname), '')), string_agg(d.defaclacl::text, ' ' ORDER BY d.oid)
        FROM pg_catalog.pg_default_acl d LEFT JOIN pg_catalog.pg_namespace s ON s.oid = d.defaclnamespace GROUP BY 2
        UNION ALL
        SELECT 'database', quote_ident(datname), datacl::text FROM pg_catalog.pg_database
        WHERE datname = current_database()
        """
}
