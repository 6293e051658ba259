import Postgres
import System

/// Check that a database has everything that the hub needs. The check changes nothing.
///
/// The check uses connections of the hub's two logins. `run` returns each requirement with its state and advice, in the
/// order in which a person would fix them.
public struct DatabaseCheck {
    public struct Settings: Sendable {
        public var publication = "supabase_realtime"
        public var slot = "tidewire"
        /// Address of the login that evaluates policies; nil if none is configured.
        public var policies: ConnectionTarget?

        public init() {}
    }

    let connection: Connection
    let settings: Settings

    public init(_ connection: Connection, _ settings: Settings) {
        self.connection = connection
        self.settings = settings
    }

    public func run() throws(PostgresError) -> [Requirement] {
        // With an empty search path, PostgreSQL writes types with their schema, for every login.
        try connection.execute("SET search_path = ''")
        return try server() + login() + roles() + auth() + publication() + realtime() + upkeep() + policies()
    }

    func ask(_ sql: String, _ parameters: [String?] = []) throws(PostgresError) -> [[String?]] {
        try connection.query(sql, parameters).values
    }

    static let apply = "tidewire db apply"

    // MARK: The server

    private func server() throws(PostgresError) -> [Requirement] {
        let rows = try ask(
            """
            SELECT current_setting('server_version'), current_setting('wal_level'),
                current_setting('max_replication_slots'), (SELECT count(*) FROM pg_catalog.pg_replication_slots),
                current_setting('max_wal_senders'), (SELECT count(*) FROM pg_catalog.pg_stat_replication),
                EXISTS (SELECT FROM pg_catalog.pg_replication_slots WHERE slot_name = $1)
            """, [settings.slot])
        guard let row = rows.first else { return [] }
        let number = { (column: Int) in row[column].flatMap { Int($0) } ?? 0 }
        let hasSlot = row[6] == "t"
        return [
            connection.serverVersion >= 140_000
                ? .ok(.server, "version", row[0] ?? "")
                : .wrong(.server, "version", row[0] ?? "", hint: "PostgreSQL 14 or newer is needed"),
            row[1] == "logical"
                ? .ok(.server, "wal_level", "logical")
                : .wrong(
                    .server, "wal_level", row[1] ?? "",
                    hint: "then restart the server", sql: "ALTER SYSTEM SET wal_level = logical;"),
            DatabaseCheck.room("replication slots", "max_replication_slots", number(3), of: number(2), has: hasSlot),
            DatabaseCheck.room("WAL senders", "max_wal_senders", number(5), of: number(4), has: hasSlot),
        ] + (try values()) + [try slot(), try clock()].compactMap(\.self)
    }

    /// Reports the database's encoding, settings for which PostgreSQL decides policies and filters instead of the hub,
    /// and settings under which policies show no rows.
    private func values() throws(PostgresError) -> [Requirement] {
        let encoding = try ask("SELECT pg_catalog.getdatabaseencoding()").first?[0] ?? ""
        let differences = ValueSettings.Differences(try ask(ValueSettings.question))
        let ends = encoding == "SQL_ASCII" ? "; a text that is not UTF-8 ends the change stream" : ""
        let left = differences.followed.joined(separator: "; ")
        return [
            encoding == "UTF8"
                ? .ok(.server, "encoding", encoding)
                : .wrong(
                    .server, "encoding",
                    "\(encoding): PostgreSQL decides policies and filters that compare characters, which is slower\(ends)",
                    isRequired: false, hint: "use a database with ENCODING 'UTF8'"),
            differences.refused.isEmpty
                ? .ok(
                    .server, "settings of values",
                    left.isEmpty ? "as usual" : "PostgreSQL decides policies and filters that depend on them: \(left)")
                : .wrong(
                    .server, "settings of values",
                    "policies cannot be evaluated under \(differences.refused.joined(separator: "; ")), so they show no rows",
                    hint: "ALTER DATABASE … RESET or ALTER ROLE … RESET"),
        ]
    }

    /// Checks the slot; returns nil if there is no slot yet.
    private func slot() throws(PostgresError) -> Requirement? {
        let rows = try ask(
            """
            SELECT wal_status, pg_size_pretty(pg_wal_lsn_diff(
                    CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, restart_lsn)),
                pg_size_pretty(safe_wal_size), safe_wal_size < 64 * 1024 * 1024, active
            FROM pg_catalog.pg_replication_slots WHERE slot_name = $1 AND database = current_database()
            """, [settings.slot])
        guard let row = rows.first else { return nil }
        let name = "slot \(settings.slot)"
        if row[0] == "lost" {
            return .wrong(
                .server, name, "is lost: the server has removed WAL that the hub has not read",
                hint:
                    "the hub creates a new slot, records a gap and tells clients to fetch; raise max_slot_wal_keep_size"
            )
        }
        let detail =
            "keeps \(row[1] ?? "no") of WAL\(row[2].map { ", and is lost after \($0) more" } ?? "")"
            + (row[4] == "t" ? "" : "; no hub reads it now")
        guard row[0] == "unreserved" || row[3] == "t" else { return .ok(.server, name, detail) }
        return .wrong(
            .server, name, detail, isRequired: false,
            hint: "start the hub, or raise max_slot_wal_keep_size, before it is lost")
    }

    /// Compares the clocks of PostgreSQL and the hub, because tokens contain times.
    private func clock() throws(PostgresError) -> Requirement? {
        let before = KernelTime().unixSeconds
        let rows = try ask("SELECT extract(epoch FROM clock_timestamp())::int8")
        let after = KernelTime().unixSeconds
        guard let there = rows.first?[0].flatMap({ Int64($0) }) else { return nil }
        let apart = there < before ? before - there : max(0, there - after)
        if apart <= 2 { return .ok(.server, "clock", "agrees with this machine's") }
        return .wrong(
            .server, "clock",
            "differs from this machine's by \(apart) s: whatever expires, such as tokens, expires earlier or later",
            isRequired: apart > 60, hint: "synchronize the clocks of both machines (timedatectl set-ntp true)")
    }

    /// Checks that one more place (such as a slot or a sender) is free for the hub, or that the hub already has its
    /// place.
    private static func room(
        _ name: String, _ setting: String, _ used: Int, of limit: Int, has isThere: Bool
    ) -> Requirement {
        let detail = "\(used) of \(limit) in use" + (isThere ? ", the hub's slot is there" : "")
        if used < limit || (isThere && limit > 0) { return .ok(.server, name, detail) }
        return .wrong(
            .server, name, detail,
            hint: "raise \(setting) and restart the server, or remove what is not needed any more")
    }

    // MARK: The hub's login

    private func login() throws(PostgresError) -> [Requirement] {
        let rows = try ask(
            """
            SELECT me.rolname, me.rolsuper, me.rolbypassrls, me.rolreplication OR me.rolsuper OR EXISTS (
                    SELECT FROM pg_catalog.pg_roles r WHERE r.rolname IN ('rds_replication', 'azure_pg_admin')
                        AND pg_catalog.pg_has_role(me.oid, r.oid, 'MEMBER')),
                (SELECT string_agg(wanted.name, ', ') FROM unnest('{anon,authenticated}'::text[]) AS wanted (name)
                 WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = wanted.name
                    AND pg_catalog.pg_has_role(me.oid, r.oid, '\(becoming)'))),
                has_database_privilege(current_database(), 'TEMPORARY'),
                EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = 'service_role'
                    AND pg_catalog.pg_has_role(me.oid, r.oid, 'MEMBER'))
            FROM pg_catalog.pg_roles me WHERE me.rolname = session_user
            """)
        guard let row = rows.first, let name = row[0] else { return [] }
        let quoted = Quoted.identifier(name)
        var found: [Requirement] = [
            row[3] == "t"
                ? .ok(.login, "replication", "\(name) may read the change stream")
                : .wrong(
                    .login, "replication", "\(name) may not read the change stream",
                    hint: "as a superuser (managed services have a role to grant)",
                    sql: "ALTER ROLE \(quoted) REPLICATION;"),
            row[4] == nil
                ? .ok(.login, "client roles", "\(name) can become anon and authenticated")
                : .wrong(
                    .login, "client roles", "\(name) cannot become \(row[4] ?? "")",
                    sql: "GRANT \(row[4] ?? "") TO \(quoted);"),
            row[5] == "t"
                ? .ok(.login, "temporary objects", "\(name) may create them")
                : .wrong(
                    .login, "temporary objects", "\(name) may not create any",
                    sql: "GRANT TEMPORARY ON DATABASE … TO \(quoted);"),
        ]
        if row[1] == "t" || row[2] == "t" || row[6] == "t" {
            let why =
                row[1] == "t"
                ? "a superuser" : row[2] == "t" ? "a role that bypasses row level security" : "a member of service_role"
            found.append(
                .wrong(
                    .login, "least privilege", "\(name) is \(why)", isRequired: false,
                    hint: "let the hub log in as the role of sql/040_hub_role.sql"))
        }
        return found
    }

    /// Privilege that lets a member of a role switch to the role. Since PostgreSQL 16, a grant of membership may
    /// exclude it.
    var becoming: String { connection.serverVersion >= 160_000 ? "SET" : "MEMBER" }

    // MARK: Roles

    private func roles() throws(PostgresError) -> [Requirement] {
        let found = try ask(
            """
            SELECT rolname, rolbypassrls OR rolsuper FROM pg_catalog.pg_roles
            WHERE rolname IN ('anon', 'authenticated', 'service_role', 'supabase_realtime_admin', 'tidewire',
                'tidewire_policies')
            """)
        let bypasses = Dictionary(uniqueKeysWithValues: found.map { ($0[0] ?? "", $0[1] == "t") })
        let wanted = [
            ("anon", true), ("authenticated", true), ("service_role", true), ("supabase_realtime_admin", false),
            ("tidewire", false), ("tidewire_policies", false),
        ]
        return wanted.map { name, isRequired in
            guard let bypasses = bypasses[name] else {
                return .missing(.roles, name, "does not exist", isRequired: isRequired, hint: DatabaseCheck.apply)
            }
            if name == "service_role", !bypasses {
                return .wrong(
                    .roles, name, "does not bypass row level security", isRequired: false,
                    hint: "as a superuser", sql: "ALTER ROLE service_role BYPASSRLS;")
            }
            return .ok(.roles, name, "exists")
        }
    }

    // MARK: auth

    private func auth() throws(PostgresError) -> [Requirement] {
        let found = try ask(
            """
            SELECT p.proname FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
            WHERE n.nspname = 'auth' AND p.pronargs = 0
            """
        ).compactMap { $0[0] }
        return ["uid", "role", "jwt", "email"].map { name in
            found.contains(name)
                ? .ok(.auth, "auth.\(name)()", "exists")
                : .missing(
                    .auth, "auth.\(name)()", "does not exist", isRequired: name != "email", hint: DatabaseCheck.apply)
        }
    }

    // MARK: Publication

    private func publication() throws(PostgresError) -> [Requirement] {
        let name = settings.publication
        let quoted = Quoted.identifier(name)
        guard
            let flags = try ask(
                "SELECT pubinsert, pubupdate, pubdelete FROM pg_catalog.pg_publication WHERE pubname = $1", [name]
            ).first
        else {
            return [.missing(.publication, name, "does not exist", sql: "CREATE PUBLICATION \(quoted);")]
        }
        let left = zip(["insert", "update", "delete"], flags).filter { $0.1 != "t" }.map(\.0)
        let tables = try publishedTables(name, refusesChanges: flags[1] == "t" || flags[2] == "t")
        var found: [Requirement] = [.ok(.publication, name, "\(tables.count) tables")]
        if !left.isEmpty {
            found.append(
                .wrong(
                    .publication, "events", "does not publish \(left.joined(separator: ", "))", isRequired: false,
                    sql: "ALTER PUBLICATION \(quoted) SET (publish = 'insert, update, delete, truncate');"))
        }
        if tables.isEmpty {
            found.append(
                .missing(
                    .publication, "tables", "the publication has none: nobody can subscribe to changes",
                    isRequired: false,
                    sql: "ALTER PUBLICATION \(quoted) ADD TABLE …;"))
        }
        return try found + [ownPublication()] + tables + [definitions()].compactMap(\.self)
    }

    /// Checks the publication `tidewire_internal`, which has the tables that policies read.
    private func ownPublication() throws(PostgresError) -> Requirement {
        let name = "tidewire_internal"
        let rows = try ask(
            """
            SELECT (SELECT count(*) FROM pg_catalog.pg_publication_rel r WHERE r.prpubid = p.oid)
            FROM pg_catalog.pg_publication p WHERE p.pubname = $1
            """, [name])
        if let row = rows.first { return .ok(.publication, name, "\(row[0] ?? "0") tables that policies read") }
        return .missing(
            .publication, name, "does not exist: policies that read unpublished tables are slower",
            isRequired: false, sql: "CREATE PUBLICATION \(name) WITH (publish = 'insert, update, delete, truncate');")
    }

    /// Checks the tables of a publication.
    ///
    /// - Parameter refusesChanges: true if PostgreSQL refuses updates and deletes of published tables without a key.
    private func publishedTables(
        _ publication: String, refusesChanges: Bool
    ) throws(PostgresError) -> [Requirement] {
        try ask(
            """
            SELECT format('%I.%I', t.schemaname, t.tablename), c.relrowsecurity, c.relreplident, EXISTS (
                SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)
            FROM pg_catalog.pg_publication_tables t
            JOIN pg_catalog.pg_namespace n ON n.nspname = t.schemaname
            JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
            WHERE t.pubname = $1 ORDER BY 1
            """, [publication]
        ).map { row in
            let table = row[0] ?? ""
            let security =
                row[1] == "t" ? "row level security" : "no row level security: every client role with SELECT sees all"
            switch (row[2] ?? "", row[3] == "t") {
            case ("f", _): return .ok(.publication, table, "\(security), full old rows")
            case ("i", _), ("d", true):
                return .ok(
                    .publication, table, "\(security), old rows have only their key",
                    hint: "to get whole old rows", sql: "ALTER TABLE \(table) REPLICA IDENTITY FULL;")
            default:
                return .wrong(
                    .publication, table,
                    refusesChanges
                        ? "has no key: PostgreSQL refuses its updates and deletes"
                        : "has no key: its updates and deletes cannot be published", isRequired: refusesChanges,
                    hint: "add a primary key, or use REPLICA IDENTITY FULL",
                    sql: "ALTER TABLE \(table) REPLICA IDENTITY FULL;")
            }
        }
    }
}
