import Embedded
import Postgres
import TestSupport
import Testing

@Suite(.within(minutes: 10)) struct DatabaseCheckTests {
    let stage: RealtimeStage

    init() throws { stage = try RealtimeStage() }

    private func check(policies: ConnectionTarget? = nil) throws -> [Requirement] {
        var settings = DatabaseCheck.Settings()
        settings.policies = policies
        return try DatabaseCheck(stage.database.cluster.connect(database: stage.database.name), settings).run()
    }

    private func state(_ name: String, in found: [Requirement]) throws -> Requirement.State {
        try #require(found.first { $0.name.hasPrefix(name) }, "\(name)").state
    }

    @Test func `a database that was prepared is ready`() throws {
        let found = try check()
        #expect(found.filter(\.isFailure).isEmpty)
        #expect(try state("least privilege", in: found) == .wrong, "a superuser is more than is needed")
    }

    @Test func `an empty database says what is missing and by what it is made`() throws {
        let empty = try TestDatabase()
        let found = try DatabaseCheck(empty.connection, DatabaseCheck.Settings()).run()
        for name in ["auth.uid()", "supabase_realtime", "schema", "tidewire.add_channel_probes"] {
            let requirement = try #require(found.first { $0.name.hasPrefix(name) && $0.isFailure }, "\(name)")
            #expect(requirement.state == .missing && requirement.hint?.isEmpty == false)
        }
    }

    @Test(arguments: [
        ("DROP FUNCTION realtime.topic()", "realtime.topic()", Requirement.State.missing, true),
        ("ALTER FUNCTION realtime.topic() VOLATILE", "realtime.topic()", .wrong, false),
        ("ALTER FUNCTION realtime.topic() SECURITY DEFINER", "realtime.topic()", .wrong, true),
        ("DROP FUNCTION realtime.list_changes", "realtime.list_changes", .missing, false),
        ("ALTER TABLE realtime.messages DISABLE ROW LEVEL SECURITY", "row level security", .wrong, true),
        ("ALTER TABLE realtime.messages FORCE ROW LEVEL SECURITY", "row level security", .wrong, true),
        ("DROP TABLE realtime.subscription", "realtime.subscription", .missing, false),
        ("DROP PUBLICATION supabase_realtime_messages_publication", "supabase_realtime_messages", .missing, true),
        (
            "ALTER PUBLICATION supabase_realtime_messages_publication ADD TABLE realtime.subscription",
            "supabase_realtime_messages", .wrong, true
        ),
        (
            "GRANT USAGE ON SCHEMA tidewire TO anon; GRANT EXECUTE ON FUNCTION tidewire.keep_messages TO anon",
            "tidewire.keep_messages", .wrong, true
        ),
        ("ALTER FUNCTION tidewire.add_channel_probes OWNER TO postgres", "tidewire.add_channel_probes", .wrong, true),
        ("ALTER FUNCTION tidewire.add_channel_probes SECURITY INVOKER", "tidewire.add_channel_probes", .wrong, true),
        ("DROP FUNCTION auth.jwt()", "auth.jwt()", .missing, true),
        ("DROP PUBLICATION supabase_realtime", "supabase_realtime", .missing, true),
        (
            """
            CREATE TABLE public.parted (a int PRIMARY KEY) PARTITION BY RANGE (a);
            ALTER PUBLICATION supabase_realtime SET (publish_via_partition_root = true);
            ALTER PUBLICATION supabase_realtime ADD TABLE public.parted
            """, "definitions", .wrong, false
        ),
        (
            "CREATE TABLE public.bare (a int); ALTER PUBLICATION supabase_realtime ADD TABLE public.bare",
            "public.bare", .wrong, true
        ),
        (
            "SELECT tidewire.keep_messages(); DO $$ BEGIN EXECUTE (SELECT 'DROP TABLE realtime.messages_' || to_char(timezone('utc', now()), 'YYYY_MM_DD')); END $$",
            "today's partition", .missing, true
        ),
        (
            "DO $$ BEGIN EXECUTE (SELECT 'DROP TABLE realtime.messages_' || to_char(timezone('utc', now()) + interval '1 day', 'YYYY_MM_DD')); END $$",
            "tomorrow's partition", .missing, false
        ),
    ])
    func `each harm is found`(harm: String, name: String, state: Requirement.State, isFailure: Bool) throws {
        try stage.run(harm)
        let found = try check().filter { $0.name.hasPrefix(name) && $0.state != .ok }
        #expect(found.count == 1, "\(found)")
        #expect(found.first?.state == state && found.first?.isFailure == isFailure)
        #expect(found.first?.hint?.isEmpty == false)
    }

    @Test func `published tables are described`() throws {
        try stage.run(
            """
            CREATE TABLE public.open (id int PRIMARY KEY); CREATE TABLE public.full_rows (id int PRIMARY KEY);
            ALTER TABLE public.full_rows REPLICA IDENTITY FULL; ALTER TABLE public.full_rows ENABLE ROW LEVEL SECURITY;
            ALTER PUBLICATION supabase_realtime ADD TABLE public.open, public.full_rows;
            """)
        let found = try check()
        let open = try #require(found.first { $0.name == "public.open" })
        #expect(open.state == .ok && open.detail.hasPrefix("no row level security"))
        #expect(open.hint == "to get whole old rows: ALTER TABLE public.open REPLICA IDENTITY FULL;")
        #expect(found.first { $0.name == "public.full_rows" }?.detail == "row level security, full old rows")
    }

    @Test func `the login for policies is looked at`() throws {
        let name = "policies_\(UInt32.random(in: 0 ... .max))"
        try stage.run("CREATE ROLE \(name) LOGIN NOINHERIT PASSWORD 'p'; GRANT anon, authenticated TO \(name)")
        let cluster = stage.database.cluster
        let target = ConnectionTarget(cluster.url(user: name, password: "p", database: stage.database.name))
        #expect(try state(name, in: check(policies: target)) == .ok)
        try stage.run("GRANT service_role TO \(name)")
        #expect(try state(name, in: check(policies: target)) == .wrong)
        let elsewhere = ConnectionTarget(cluster.url(user: name, password: "p"))
        #expect(try state("policy_database_url", in: check(policies: elsewhere)) == .wrong)
        let wrong = ConnectionTarget(cluster.url(user: name, password: "no", database: stage.database.name))
        #expect(try state("policy_database_url", in: check(policies: wrong)) == .wrong)
        #expect(try state("policy_database_url", in: check()) == .missing)
    }
}
