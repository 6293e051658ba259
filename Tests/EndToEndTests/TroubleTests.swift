import Change
import Diagnostics
import Embedded
import Foundation
import Postgres
import Replication
import Server
import System
import TestSupport
import Testing

@testable import Ingest

extension EndToEnd {
    @Suite(.serialized) struct TroubleTests {
        @Test func `a wrong password is said, and tried again until it is right`() throws {
            let database = try TestDatabase()
            let role = "login_\(UInt32.random(in: 0 ... .max))"
            try database.run(
                "CREATE PUBLICATION supabase_realtime; CREATE ROLE \(role) LOGIN REPLICATION PASSWORD 'right'")
            let hub = try HubUnderTest(database) {
                $0.replication.target = ConnectionTarget(
                    database.cluster.url(user: role, password: "wrong", database: database.name))
            }
            try hub.start(awaitingStream: false)
            try eventually("the refusal") { hub.service?.status.trouble?.reason == .authentication }
            #expect(hub.service?.status.trouble?.hint?.contains("TIDEWIRE_DATABASE_URL") == true)
            try database.run("ALTER ROLE \(role) PASSWORD 'wrong'")
            try eventually("the stream") { hub.service?.status.isStreaming == true }
            hub.stop()
        }

        @Test func `what the server remarks is in the log, in its form and without its text`() throws {
            let cluster = try TestCluster.fresh()
            let database = try TestDatabase(on: cluster)
            try database.run("CREATE PUBLICATION supabase_realtime FOR ALL TABLES")
            let hub = ServedHub(database: database)
            defer { hub.kill() }
            try hub.start(["--log-format", "json", "--log-level", "debug"])
            // If one session crashes, the server warns all sessions and ends them. A session that writes before it
            // reads finds its connection closed, and never reads the warning. The stream's session reads all the time.
            let isFollowed = "SELECT count(*) > 0 FROM pg_stat_replication WHERE state = 'streaming'"
            func crash() throws -> UInt64 {
                // A crash ends the database's own connection too.
                try eventually("the stream") {
                    (try? cluster.connect(database: database.name).execute(isFollowed).first?.first) == "t"
                }
                let victim = try cluster.connect(database: database.name)
                let pid = try victim.execute("SELECT pg_backend_pid()").values.first?[0].flatMap { Int32($0) }
                #expect(kill(try #require(pid), SIGKILL) == 0)
                return Clock.monotonicNanoseconds()
            }
            // On a busy machine, the stream's connection may end before the server sent the warning. Then the test
            // crashes the server again.
            var crashed = try crash()
            let remark =
                #""event":"PostgreSQL sent a notice","project":"realtime-dev","severity":"WARNING","sqlstate":"57P02""#
            var lines: [Substring] = []
            try eventually("the remark") {
                let text = try String(contentsOfFile: hub.output, encoding: .utf8)
                lines = text.split(separator: "\n")
                if text.contains(remark) { return true }
                if Clock.monotonicNanoseconds() > crashed + 30_000_000_000 { crashed = try crash() }
                return false
            }
            #expect(lines.dropLast().allSatisfy { $0.hasPrefix("{\"time\":") && $0.hasSuffix("}") })
            #expect(
                !lines.contains { $0.contains("terminating connection because of crash") && !$0.contains("\"error\"") })
            // A server that is stopped during its recovery may not wait for its clients.
            try eventually("the server") { (try? cluster.connect()) != nil }
            cluster.stop()
        }

        @Test func `a missing publication is made where that is allowed`() throws {
            let database = try TestDatabase()
            let hub = try HubUnderTest(database)
            try hub.start()
            #expect(
                try database.value("SELECT count(*) FROM pg_publication WHERE pubname = 'supabase_realtime'") == "1")
        }

        @Test func `a missing publication is said with the SQL where it is not`() throws {
            let database = try TestDatabase()
            let hub = try HubUnderTest(database) { $0.replication.mayCreatePublication = false }
            try hub.start(awaitingStream: false)
            try eventually("the complaint") { hub.service?.status.trouble?.reason == .publicationMissing }
            #expect(hub.service?.status.trouble?.hint?.contains("CREATE PUBLICATION \"supabase_realtime\"") == true)
            try database.run("CREATE PUBLICATION supabase_realtime")
            try eventually("the stream") { hub.service?.status.isStreaming == true }
        }

        @Test func `a missing slot is said with the SQL where it may not be made`() throws {
            let database = try TestDatabase()
            try database.run("CREATE PUBLICATION supabase_realtime")
            let hub = try HubUnderTest(database) { $0.replication.mayCreateSlot = false }
            try hub.start(awaitingStream: false)
            try eventually("the complaint") { hub.service?.status.trouble?.reason == .slotMissing }
            #expect(hub.service?.status.trouble?.hint?.contains("pg_create_logical_replication_slot") == true)
            try database.run("SELECT pg_create_logical_replication_slot('\(database.slot)', 'pgoutput')")
            try eventually("the stream") { hub.service?.status.isStreaming == true }
        }

        @Test func `somebody else's slot is left alone`() throws {
            let database = try TestDatabase()
            try database.run("SELECT pg_create_logical_replication_slot('\(database.slot)', 'test_decoding')")
            let hub = try HubUnderTest(database)
            try hub.start(awaitingStream: false)
            try eventually("the complaint") { hub.service?.status.trouble?.message.contains("test_decoding") == true }
            hub.stop()
            #expect(
                try database.value("SELECT plugin FROM pg_replication_slots WHERE slot_name = '\(database.slot)'")
                    == "test_decoding")
        }

        @Test func `a publication that was dropped and made again is a gap, not a standstill`() throws {
            let database = try TestDatabase()
            try database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION supabase_realtime FOR TABLE t")
            let hub = try HubUnderTest(database)
            try hub.start()
            try database.run("INSERT INTO t VALUES (1)")
            try hub.caughtUp()
            try database.run("DROP PUBLICATION supabase_realtime")
            try database.run("INSERT INTO t VALUES (2)")
            try database.run("CREATE PUBLICATION supabase_realtime FOR TABLE t")
            try eventually("the gap") { try hub.history().gaps.map(\.reason) == [.publicationRecreated] }
            try eventually("the stream") { hub.service?.status.isStreaming == true }
            try database.run("INSERT INTO t VALUES (3)")
            let history = try hub.caughtUp()
            #expect(history.changes(of: "public.t").last?.new["id"] == "3")
        }

        @Test func `the hub's own role is enough`() throws {
            let cluster = try TestCluster.fresh()
            let database = try DemoDatabase(in: cluster)
            let test = try TestDatabase(on: cluster)
            let dataDirectory = TemporaryDirectory.make("data")
            let service = try IngestService(
                IngestService.Settings(
                    replication: ReplicationSettings(target: ConnectionTarget(database.hubURL)),
                    dataDirectory: dataDirectory))
            defer { service.stop() }
            try eventually("the stream") { service.status.isStreaming }
            let connection = try cluster.connect()
            for _ in 0..<50 { _ = try DemoDatabase.step(connection) }
            let history = try { () throws -> LoggedHistory in
                var found = LoggedHistory()
                try eventually("the demo's changes") {
                    found = try LoggedHistory.read(IngestService.Settings.logDirectory(dataDirectory))
                    return found.changes.count >= 50
                }
                return found
            }()
            #expect(history.changes.contains { $0.table == "demo.orders" })
            withExtendedLifetime(test) {}
        }

        @Test func `applying sql a second time changes nothing`() throws {
            let cluster = try TestCluster.fresh()
            _ = try DemoDatabase(in: cluster)
            let before = try dump(cluster)
            _ = try DemoDatabase(in: cluster)
            #expect(try dump(cluster) == before)
            #expect(before.contains("CREATE POLICY") && before.contains("demo.orders"))
            #expect(before.contains("CREATE FUNCTION realtime.broadcast_changes("))
            cluster.stop()
        }

        @Test func `an existing Supabase database is left as it is`() throws {
            let cluster = try TestCluster.fresh(clientRoles: false)
            let connection = try cluster.connect()
            // These objects exist already, but with other attributes or bodies, under the names that the hub would use.
            try connection.execute(
                """
                CREATE ROLE anon NOLOGIN INHERIT; CREATE ROLE authenticated NOLOGIN INHERIT CONNECTION LIMIT 7;
                CREATE ROLE service_role NOLOGIN BYPASSRLS CREATEDB; CREATE ROLE authenticator LOGIN NOINHERIT;
                GRANT anon, authenticated TO authenticator;
                CREATE SCHEMA auth; CREATE TABLE auth.users (id uuid PRIMARY KEY, email text);
                CREATE FUNCTION auth.uid() RETURNS uuid LANGUAGE sql STABLE AS $$ SELECT NULL::uuid $$;
                CREATE FUNCTION auth.role() RETURNS text LANGUAGE sql STABLE AS $$ SELECT 'theirs' $$;
                CREATE FUNCTION auth.email() RETURNS text LANGUAGE sql STABLE AS $$ SELECT 'theirs' $$;
                CREATE FUNCTION auth.jwt() RETURNS jsonb LANGUAGE sql STABLE AS $$ SELECT '{}'::jsonb $$;
                CREATE TABLE public.posts (mine text); CREATE TABLE public.staff (mine text);
                CREATE SCHEMA demo; CREATE TABLE demo.orders (mine text);
                ALTER TABLE public.posts ENABLE ROW LEVEL SECURITY;
                CREATE POLICY mine ON public.posts USING (true);
                CREATE PUBLICATION supabase_realtime FOR ALL TABLES;
                CREATE ROLE supabase_realtime_admin NOLOGIN; CREATE SCHEMA realtime; GRANT USAGE ON SCHEMA realtime TO anon;
                CREATE TABLE realtime.schema_migrations (version bigint PRIMARY KEY, inserted_at timestamp(0));
                INSERT INTO realtime.schema_migrations VALUES (20211116024918, '2024-01-01');
                CREATE TABLE realtime.messages (topic text NOT NULL, extension text NOT NULL, payload jsonb, event text,
                    private boolean DEFAULT false, updated_at timestamp NOT NULL DEFAULT now(),
                    inserted_at timestamp NOT NULL DEFAULT now(), id uuid NOT NULL DEFAULT gen_random_uuid(),
                    PRIMARY KEY (id, inserted_at)) PARTITION BY RANGE (inserted_at);
                ALTER TABLE realtime.messages OWNER TO supabase_realtime_admin;
                CREATE FUNCTION realtime.topic() RETURNS text LANGUAGE sql STABLE AS $$ SELECT 'theirs' $$;
                CREATE PUBLICATION supabase_realtime_messages_publication FOR TABLE realtime.messages;
                """)
            let before = try dump(cluster)
            for file in SQLFile.foundation { try file.apply(connection) }
            let after = try dump(cluster, "--exclude-schema=tidewire").split(separator: "\n")
                .filter { !$0.contains("tidewire") && $0 != "--" }
            #expect(
                after == before.split(separator: "\n").filter { $0 != "--" },
                "only the hub's own roles, schema and publication were added")
            #expect(
                try connection.execute("SELECT version FROM realtime.schema_migrations").values == [["20211116024918"]])
            for file in SQLFile.scenarios + SQLFile.demo { try file.apply(connection) }
            let lines = Set(try dump(cluster).split(separator: "\n"))
            for line in before.split(separator: "\n") { #expect(lines.contains(line), "gone or changed: \(line)") }
            #expect(try connection.execute("SELECT count(*) FROM pg_policies WHERE tablename = 'posts'").first == ["1"])
            cluster.stop()
        }

        /// Returns schema and roles as text, one item per line.
        private func dump(_ cluster: PrivateCluster, _ options: String = "") throws -> String {
            let file = TemporaryDirectory.make("dump") + "/dump.sql"
            try shell("\(cluster.binaries.path("pg_dump")) --schema-only \(options) -d '\(cluster.url())' -f \(file)")
            let roles = try cluster.connect().execute("SELECT r::text FROM pg_roles r ORDER BY rolname").values
            let members = try cluster.connect().execute(
                "SELECT roleid::regrole || ' has ' || member::regrole FROM pg_auth_members ORDER BY 1"
            ).values
            // Newer versions of pg_dump mark each dump with a random word.
            let schema = try String(contentsOfFile: file, encoding: .utf8)
                .split(separator: "\n").filter { !$0.hasPrefix("\\restrict") && !$0.hasPrefix("\\unrestrict") }.map(
                    String.init)
            return (schema + (roles + members).map { $0[0] ?? "" }).joined(separator: "\n")
        }
    }
}
