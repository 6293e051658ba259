import Postgres

/// Checks of the schema `realtime`: it must have what applications and the hub expect.
extension DatabaseCheck {
    func realtime() throws(PostgresError) -> [Requirement] {
        guard try !ask("SELECT FROM pg_catalog.pg_namespace WHERE nspname = 'realtime'").isEmpty else {
            return [.missing(.realtime, "schema", "does not exist", hint: DatabaseCheck.apply)]
        }
        return try [origin()] + messages() + [messagesPublication(), subscription()] + functions()
    }

    /// Reports which program created the schema. If Supabase created it, the hub adds nothing that is missing.
    private func origin() throws(PostgresError) -> Requirement {
        let mark = try ask(
            """
            SELECT pg_catalog.obj_description(c.oid, 'pg_class') FROM pg_catalog.pg_class c
            JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = 'realtime' AND c.relname = 'schema_migrations'
            """)
        let isOurs = mark.first?[0]?.hasPrefix("Tidewire:") ?? false
        return .ok(.realtime, "schema", isOurs ? "made by sql/realtime" : "made by another program, left as it is")
    }

    // MARK: realtime.messages

    private func messages() throws(PostgresError) -> [Requirement] {
        let rows = try ask(
            """
            SELECT c.relkind, c.relrowsecurity, c.relforcerowsecurity,
                (SELECT count(*) FROM pg_catalog.pg_policy p WHERE p.polrelid = c.oid),
                (SELECT string_agg(wanted.name, ', ') FROM unnest('{topic,extension,payload,event,private,updated_at,
                    inserted_at,id}'::text[]) AS wanted (name)
                 WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid
                    AND a.attname = wanted.name AND NOT a.attisdropped))
            FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = 'realtime' AND c.relname = 'messages'
            """)
        let name = "realtime.messages"
        guard let row = rows.first else {
            return [
                .missing(
                    .realtime, name, "does not exist",
                    hint: "\(DatabaseCheck.apply); if another program made the schema, update that program")
            ]
        }
        if let columns = row[4] {
            return [
                .wrong(.realtime, name, "has no \(columns)", hint: "update the program that made it")
            ]
        }
        return try [table(row), security(row)] + partitions(isPartitioned: row[0] == "p")
    }

    private func table(_ row: [String?]) -> Requirement {
        row[0] == "p"
            ? .ok(.realtime, "realtime.messages", "partitioned")
            : .wrong(
                .realtime, "realtime.messages", "is not partitioned: old messages are never dropped", isRequired: false,
                hint: "update the program that made it")
    }

    private func security(_ row: [String?]) -> Requirement {
        if row[1] != "t" {
            return .wrong(
                .realtime, "row level security", "is off: everybody may join every private channel",
                sql: "ALTER TABLE realtime.messages ENABLE ROW LEVEL SECURITY;")
        }
        if row[2] == "t" {
            return .wrong(
                .realtime, "row level security", "is forced on the owner too: the hub cannot test policies",
                sql: "ALTER TABLE realtime.messages NO FORCE ROW LEVEL SECURITY;")
        }
        if row[3] == "0" {
            return .ok(
                .realtime, "row level security", "on, no policy",
                hint: "nobody may join private channels before there is a policy on realtime.messages")
        }
        return .ok(.realtime, "row level security", "on, \(row[3] ?? "0") policies")
    }

    private func partitions(isPartitioned: Bool) throws(PostgresError) -> [Requirement] {
        guard isPartitioned else { return [] }
        // Partitions are compared by their bounds, because they may have other names.
        let rows = try ask(
            """
            SELECT wanted.day, EXISTS (
                SELECT FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
                JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                WHERE i.inhparent = (SELECT p.oid FROM pg_catalog.pg_class p JOIN pg_catalog.pg_namespace s
                        ON s.oid = p.relnamespace WHERE s.nspname = 'realtime' AND p.relname = 'messages')
                    AND (pg_get_expr(c.relpartbound, c.oid) = 'DEFAULT'
                        OR pg_get_expr(c.relpartbound, c.oid) LIKE 'FOR VALUES FROM (''' || wanted.day || ' 00:00:00''%'))
            FROM (SELECT timezone('utc', now())::date + n FROM generate_series(0, 1) AS n) AS wanted (day) ORDER BY 1
            """)
        return zip(["today's partition", "tomorrow's partition"], rows).map { name, row in
            let day = row[0] ?? ""
            if row[1] == "t" { return .ok(.realtime, name, day) }
            return .missing(
                .realtime, name, "there is none for \(day): messages of that day are lost",
                isRequired: name.hasPrefix("today"),
                hint: "a running hub calls it", sql: "SELECT * FROM tidewire.keep_messages();")
        }
    }

    private func messagesPublication() throws(PostgresError) -> Requirement {
        let name = "supabase_realtime_messages_publication"
        let rows = try ask(
            """
            SELECT p.puballtables OR NOT p.pubinsert, (
                SELECT string_agg(r.prrelid::regclass::text, ', ' ORDER BY 1) FROM pg_catalog.pg_publication_rel r
                WHERE r.prpubid = p.oid)
            FROM pg_catalog.pg_publication p WHERE p.pubname = $1
            """, [name])
        guard let row = rows.first else {
            return .missing(
                .realtime, name, "does not exist: broadcasts from the database do not arrive",
                sql: "CREATE PUBLICATION \(name) FOR TABLE realtime.messages;")
        }
        if row[0] == "f", row[1] == "realtime.messages" { return .ok(.realtime, name, "realtime.messages") }
        return .wrong(
            .realtime, name, "does not publish exactly the inserts into realtime.messages",
            sql: "DROP PUBLICATION \(name); CREATE PUBLICATION \(name) FOR TABLE realtime.messages;")
    }

    private func subscription() throws(PostgresError) -> Requirement {
        let isThere = try !ask(
            """
            SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = 'realtime' AND c.relname = 'subscription'
            """
        ).isEmpty
        if isThere { return .ok(.realtime, "realtime.subscription", "exists") }
        return .missing(
            .realtime, "realtime.subscription", "does not exist", isRequired: false, hint: DatabaseCheck.apply)
    }

    // MARK: Functions

    private struct ExpectedFunction {
        let name: String
        let arguments: String
        /// Letter in the catalog for the function's volatility: immutable, stable or volatile.
        let volatility: Character
        /// True if applications call the function. The other functions only serve tools that compare databases.
        var isRequired = false
    }

    private static let expectedFunctions = [
        ExpectedFunction(name: "topic", arguments: "", volatility: "s", isRequired: true),
        ExpectedFunction(
            name: "send", arguments: "payload jsonb, event text, topic text, private boolean DEFAULT true",
            volatility: "v", isRequired: true),
        ExpectedFunction(
            name: "send_binary", arguments: "payload bytea, event text, topic text, private boolean DEFAULT true",
            volatility: "v"),
        ExpectedFunction(
            name: "broadcast_changes",
            arguments: "topic_name text, event_name text, operation text, table_name text, table_schema text, "
                + "new record, old record, level text DEFAULT 'ROW'::text", volatility: "v", isRequired: true),
        ExpectedFunction(
            name: "apply_rls", arguments: "wal jsonb, max_record_bytes integer DEFAULT (1024 * 1024)", volatility: "v"),
        ExpectedFunction(
            name: "list_changes",
            arguments: "publication name, slot_name name, max_changes integer, max_record_bytes integer",
            volatility: "v"),
        ExpectedFunction(
            name: "build_prepared_statement_sql",
            arguments: "prepared_statement_name text, entity regclass, columns realtime.wal_column[]", volatility: "v"),
        ExpectedFunction(name: "cast", arguments: "val text, type_ regtype", volatility: "i"),
        ExpectedFunction(
            name: "check_equality_op", arguments: "op realtime.equality_op, type_ regtype, val_1 text, val_2 text",
            volatility: "i"),
        ExpectedFunction(
            name: "check_equality_op",
            arguments: "op realtime.equality_op, type_ regtype, val_1 text, val_2 text, negate boolean", volatility: "s"
        ),
        ExpectedFunction(
            name: "is_visible_through_filters",
            arguments: "columns realtime.wal_column[], filters realtime.user_defined_filter[]", volatility: "s"),
        ExpectedFunction(name: "quote_wal2json", arguments: "entity regclass", volatility: "i"),
        ExpectedFunction(name: "wal2json_escape_identifier", arguments: "name text", volatility: "i"),
        ExpectedFunction(name: "subscription_check_filters", arguments: "", volatility: "v"),
        ExpectedFunction(name: "to_regrole", arguments: "role_name text", volatility: "i"),
    ]

    private func functions() throws(PostgresError) -> [Requirement] {
        let rows = try ask(
            """
            SELECT p.proname, pg_catalog.pg_get_function_arguments(p.oid), p.provolatile, p.prosecdef
            FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
            WHERE n.nspname = 'realtime'
            """)
        return DatabaseCheck.expectedFunctions.map { wanted in
            judge(wanted, among: rows.filter { $0[0] == wanted.name })
        }
    }

    private func judge(_ wanted: ExpectedFunction, among found: [[String?]]) -> Requirement {
        let name = "realtime.\(wanted.name)(\(wanted.arguments))"
        let hint = "\(DatabaseCheck.apply); if another program made the schema, update that program"
        guard !found.isEmpty else {
            return .missing(.realtime, name, "does not exist", isRequired: wanted.isRequired, hint: hint)
        }
        guard let same = found.first(where: { $0[1] == wanted.arguments }) else {
            let others = found.map { "(\($0[1] ?? ""))" }.joined(separator: " and ")
            return .wrong(.realtime, name, "takes \(others)", isRequired: wanted.isRequired, hint: hint)
        }
        if same[3] == "t" {
            return .wrong(
                .realtime, name, "runs with its owner's rights", isRequired: wanted.isRequired,
                sql: "ALTER FUNCTION realtime.\(Quoted.identifier(wanted.name)) SECURITY INVOKER;")
        }
        guard same[2] == String(wanted.volatility) else {
            return .wrong(.realtime, name, "has another volatility", isRequired: false, hint: hint)
        }
        return .ok(.realtime, name, "exists")
    }
}
