import Embedded
import Foundation
import Postgres
import TestSupport
import Testing

/// Tests of databases whose owner is no superuser: one in a managed service, and one that Supabase prepared. Each test
/// has its own cluster, because roles belong to the whole cluster.
@Suite(.serialized, .within(minutes: 10)) struct InstallationTests {
    /// Returns a cluster where `postgres` owns the database but is no superuser, as in managed services.
    private func managed() throws -> PrivateCluster {
        let cluster = try TestCluster.fresh(clientRoles: false)
        try cluster.connect().execute("CREATE ROLE boss SUPERUSER LOGIN PASSWORD 'boss'")
        let boss = try Connection(ConnectionTarget(cluster.url(user: "boss", password: "boss")))
        try boss.execute("ALTER ROLE postgres RENAME TO supabase_admin")
        try boss.execute("CREATE ROLE postgres LOGIN CREATEROLE CREATEDB PASSWORD 'mine'")
        try boss.execute("CREATE DATABASE app OWNER postgres")
        return cluster
    }

    @Test func `an owner who is no superuser can apply it and run an application's migrations`() throws {
        let cluster = try TestCluster.fresh(clientRoles: false)
        try cluster.connect().execute("CREATE ROLE app LOGIN CREATEROLE PASSWORD 'app'")
        try cluster.connect().execute("CREATE DATABASE app OWNER app")
        let connection = try Connection(ConnectionTarget(cluster.url(user: "app", password: "app", database: "app")))
        let installation = Installation(connection)
        for file in SQLFile.foundation {
            let step = try installation.apply(file)
            #expect(step.failure == nil, "\(file.name): \(String(describing: step.failure))")
            if file.name.hasPrefix("realtime/") { #expect(step.warnings.isEmpty, "\(file.name): \(step.warnings)") }
        }
        try migrations(connection)
        for file in SQLFile.foundation {
            let step = try installation.apply(file)
            #expect(step.doesNothing, "\(file.name) a second time: \(step.made) \(step.changed)")
        }
        #expect(
            try connection.execute("SELECT made, dropped FROM tidewire.keep_messages()").values == [["{}", "{}"]])
        cluster.stop()
    }

    /// Runs statements that projects have in their migrations.
    private func migrations(_ connection: Connection) throws {
        try connection.execute(
            """
            CREATE TABLE public.members (user_id uuid, room text); CREATE TABLE public.todos (id int PRIMARY KEY, room text);
            ALTER PUBLICATION supabase_realtime ADD TABLE public.todos;
            CREATE POLICY "members read" ON realtime.messages FOR SELECT TO authenticated USING (
                realtime.messages.extension IN ('broadcast', 'presence') AND EXISTS (SELECT 1 FROM public.members m
                    WHERE m.user_id = auth.uid() AND m.room = realtime.topic()));
            CREATE POLICY "members write" ON realtime.messages FOR INSERT TO authenticated WITH CHECK (
                realtime.messages.extension = 'broadcast' AND (SELECT realtime.topic()) LIKE 'room:%');
            ALTER POLICY "members read" ON realtime.messages USING (true);
            CREATE FUNCTION public.tell() RETURNS trigger SECURITY DEFINER LANGUAGE plpgsql AS $$
            BEGIN
                PERFORM realtime.broadcast_changes('room:' || new.room, tg_op, tg_op, tg_table_name, tg_table_schema, new, old);
                RETURN NULL;
            END $$;
            CREATE TRIGGER tell AFTER INSERT ON public.todos FOR EACH ROW EXECUTE FUNCTION public.tell();
            CREATE FUNCTION public.seen() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN new; END $$;
            CREATE TRIGGER seen BEFORE INSERT ON realtime.messages FOR EACH ROW EXECUTE FUNCTION public.seen();
            GRANT USAGE ON SCHEMA realtime TO service_role;
            INSERT INTO public.todos VALUES (1, 'a');
            INSERT INTO realtime.messages (topic, extension, event, payload) VALUES ('x', 'broadcast', 'e', '{}');
            SELECT realtime.send(payload := '{}', event := 'e', topic := 'named', private := false);
            """)
        #expect(
            try connection.execute("SELECT topic FROM realtime.messages ORDER BY 1").values.map { $0[0] }
                == ["named", "room:a", "x"])
        try connection.execute("TRUNCATE realtime.messages; DROP TRIGGER seen ON realtime.messages")
    }

    @Test func `a managed postgres can work in what a superuser applied`() throws {
        let cluster = try managed()
        let superuser = try Connection(
            ConnectionTarget(cluster.url(user: "boss", password: "boss", database: "app")))
        for file in SQLFile.foundation { try file.apply(superuser) }
        #expect(
            try superuser.execute("SELECT nspowner::regrole FROM pg_namespace WHERE nspname = 'realtime'").first
                == ["supabase_admin"])
        let postgres = try Connection(
            ConnectionTarget("postgresql://postgres:mine@127.0.0.1:\(cluster.port)/app"))
        try migrations(postgres)
        cluster.stop()
    }

    /// Objects as Supabase's Realtime creates them, with different function bodies and with some parts missing.
    private static let theirs = """
        CREATE ROLE anon; CREATE ROLE authenticated; CREATE ROLE service_role BYPASSRLS;
        CREATE ROLE supabase_realtime_admin NOLOGIN NOINHERIT;
        CREATE SCHEMA realtime; GRANT USAGE ON SCHEMA realtime TO anon; GRANT ALL ON SCHEMA realtime TO supabase_realtime_admin;
        CREATE TABLE realtime.schema_migrations (version bigint PRIMARY KEY, inserted_at timestamp(0));
        INSERT INTO realtime.schema_migrations VALUES (20211116024918, '2024-01-01'), (20211116045059, '2024-01-01');
        CREATE TYPE realtime.action AS ENUM ('INSERT', 'THEIRS');
        CREATE TABLE realtime.messages (topic text NOT NULL, extension text NOT NULL, payload jsonb, event text,
            private boolean DEFAULT false, updated_at timestamp NOT NULL DEFAULT now(),
            inserted_at timestamp NOT NULL DEFAULT now(), id uuid NOT NULL DEFAULT gen_random_uuid(),
            PRIMARY KEY (id, inserted_at)) PARTITION BY RANGE (inserted_at);
        ALTER TABLE realtime.messages ENABLE ROW LEVEL SECURITY;
        ALTER TABLE realtime.messages OWNER TO supabase_realtime_admin;
        CREATE POLICY theirs ON realtime.messages USING (true);
        CREATE FUNCTION realtime.topic() RETURNS text LANGUAGE sql STABLE AS $$ SELECT 'theirs' $$;
        CREATE FUNCTION realtime.send(payload jsonb, event text, topic text, private boolean DEFAULT true) RETURNS void
            LANGUAGE sql AS $$ SELECT NULL::void $$;
        """

    @Test func `a schema that Supabase made stays as it is`() throws {
        let cluster = try TestCluster.fresh(clientRoles: false)
        let connection = try cluster.connect()
        try connection.execute(Self.theirs)
        let before = try schema(cluster, "realtime")
        for file in SQLFile.foundation { try file.apply(connection) }
        let after = try schema(cluster, "realtime").filter { !$0.contains("tidewire") }
        #expect(after == before)
        #expect(
            try connection.execute("SELECT version FROM realtime.schema_migrations ORDER BY 1").values
                == [["20211116024918"], ["20211116045059"]])
        #expect(
            try connection.execute(
                "SELECT tablename FROM pg_publication_tables WHERE pubname = 'supabase_realtime_messages_publication'"
            ).values == [], "it has no partition yet")
        // Tidewire's functions use these objects with the rights of their owner.
        #expect(try connection.execute("SELECT cardinality(made) FROM tidewire.keep_messages()").first == ["5"])
        try connection.execute(
            """
            BEGIN; SET LOCAL ROLE tidewire_policies;
            SELECT tidewire.add_channel_probes('{t}', '{broadcast}', ARRAY[gen_random_uuid()]); ROLLBACK
            """)
        cluster.stop()
    }

    @Test func `without the owner's rights it warns and goes on`() throws {
        let cluster = try TestCluster.fresh(clientRoles: false)
        let superuser = try cluster.connect()
        try superuser.execute("CREATE ROLE app LOGIN CREATEROLE PASSWORD 'app'")
        try superuser.execute("CREATE DATABASE app OWNER app")
        try cluster.connect(database: "app").execute(Self.theirs)
        // Up to PostgreSQL 15, a role that may create roles may grant any role. From 16 on, it may grant only roles
        // that it has with ADMIN OPTION.
        let roles = try superuser.execute(
            "SELECT string_agg(rolname, ', ') FROM pg_roles WHERE rolname IN ('anon', 'authenticated', 'service_role')")
        if superuser.serverVersion >= 160_000, let roles = roles.first?.first ?? nil {
            try superuser.execute("GRANT \(roles) TO app WITH ADMIN OPTION")
        }
        let connection = try Connection(ConnectionTarget(cluster.url(user: "app", password: "app", database: "app")))
        let steps = try SQLFile.foundation.map { try Installation(connection).apply($0) }
        #expect(steps.allSatisfy { $0.failure == nil }, "\(steps.compactMap(\.failure))")
        let warnings = steps.first { $0.file == "realtime/090_upkeep.sql" }?.warnings ?? []
        // From 16 on, PostgreSQL also warns that nothing was granted.
        let ours = warnings.filter { $0.hint != nil }
        #expect(ours.count == 1 && ours.first?.hint?.contains("as a superuser or as a member of") == true)
        #expect(try connection.execute("SELECT FROM pg_namespace WHERE nspname = 'tidewire'").isEmpty)
        cluster.stop()
    }

    @Test func `a plan says what will be made and makes nothing`() throws {
        let cluster = try TestCluster.fresh(clientRoles: false)
        let connection = try cluster.connect()
        let before = try schema(cluster, nil)
        let plan = try Installation(connection).plan(SQLFile.foundation + SQLFile.extras)
        #expect(try schema(cluster, nil) == before)
        #expect(plan.allSatisfy { $0.failure == nil })
        let made = plan.flatMap(\.made).map(\.description)
        for object in [
            "role anon", "schema realtime", "table realtime.messages",
            "function realtime.send(jsonb, text, text, boolean)",
            "publication supabase_realtime_messages_publication", "event trigger tidewire_definitions_made",
            "function tidewire.keep_messages(integer)", "type realtime.wal_rls",
        ] { #expect(made.contains(object), "\(object)") }
        for (file, planned) in zip(SQLFile.foundation + SQLFile.extras, plan) {
            let step = try Installation(connection).apply(file)
            #expect(step.made == planned.made && step.changed == planned.changed, "\(file.name)")
        }
        #expect(try Installation(connection).plan(SQLFile.foundation + SQLFile.extras).allSatisfy(\.doesNothing))
        cluster.stop()
    }

    @Test func `a clean installation looks complete to Supabase's Realtime`() throws {
        let stage = try RealtimeStage()
        #expect(
            try stage.run("SELECT count(*), min(version), max(version) FROM realtime.schema_migrations").values
                == [["81", "20211116024918", "20260709120000"]])
        #expect(
            try stage.column(
                """
                SELECT column_name FROM information_schema.columns WHERE table_schema = 'realtime' AND table_name = 'messages'
                ORDER BY ordinal_position
                """) == [
                    "topic", "extension", "payload", "event", "private", "updated_at", "inserted_at", "id",
                    "binary_payload",
                ])
        #expect(
            try stage.column(
                "SELECT DISTINCT proowner::regrole FROM pg_proc WHERE pronamespace = 'realtime'::regnamespace")
                == ["supabase_realtime_admin"])
        #expect(
            try stage.column(
                "SELECT prrelid::regclass FROM pg_publication_rel r JOIN pg_publication p ON p.oid = prpubid WHERE pubname LIKE '%messages%'"
            ) == ["realtime.messages"])
        #expect(try stage.refusal("SET ROLE anon; SELECT * FROM realtime.schema_migrations") != nil)
        try stage.run("RESET ROLE")
    }

    /// Returns the lines of a dump.
    private func schema(_ cluster: PrivateCluster, _ name: String?) throws -> [String] {
        let file = TemporaryDirectory.make("dump") + "/dump.sql"
        let (text, code) = try said(
            by: [cluster.binaries.path("pg_dump"), "-d", cluster.url(), "-f", file] + (name.map { ["-n", $0] } ?? []),
            withErrors: true)
        #expect(code == 0, "\(text)")
        return try String(contentsOfFile: file, encoding: .utf8).split(separator: "\n").map(String.init)
            .filter { !$0.hasPrefix("\\restrict") && !$0.hasPrefix("\\unrestrict") }
    }
}
