import Embedded
import Postgres
import TestSupport
import Testing

@Suite(.within(minutes: 10)) struct PartitionTests {
    let stage: RealtimeStage

    init() throws { stage = try RealtimeStage() }

    private func partitions() throws -> [String] {
        try stage.column(
            """
            SELECT relname FROM pg_class c JOIN pg_inherits i ON i.inhrelid = c.oid
            WHERE inhparent = 'realtime.messages'::regclass ORDER BY 1
            """
        ).compactMap { $0 }
    }

    private func name(_ days: Int) throws -> String {
        try #require(
            try stage.value("SELECT 'messages_' || to_char(timezone('utc', now())::date + \(days), 'YYYY_MM_DD')"))
    }

    private func keep(_ hours: Int) throws -> [String?]? {
        try stage.run("SELECT made, dropped, postponed, refused FROM tidewire.keep_messages(\(hours))").first
    }

    @Test func `yesterday to three days ahead are there from the start`() throws {
        #expect(try partitions() == (-1...3).map { try name($0) })
        #expect(try keep(72) == ["{}", "{}", "{}", "{}"])
    }

    @Test func `what is missing is made and what is old is dropped`() throws {
        let old = try name(-10)
        try stage.run(
            """
            DROP TABLE realtime.\(name(2));
            CREATE TABLE realtime.\(old) PARTITION OF realtime.messages
                FOR VALUES FROM ('\(old.suffix(10).replacing("_", with: "-"))') TO (timezone('utc', now())::date - 9);
            CREATE TABLE realtime.messages_of_ours PARTITION OF realtime.messages FOR VALUES FROM ('2000-01-01') TO ('2000-01-02');
            CREATE TABLE realtime.messages_2001_01_01 PARTITION OF realtime.messages FOR VALUES FROM ('2001-01-01') TO ('2001-01-02');
            ALTER TABLE realtime.\(old) OWNER TO supabase_realtime_admin;
            """)
        #expect(
            try keep(72) == ["{\(name(2))}", "{\(old)}", "{}", "{messages_2001_01_01}"], "one belongs to another role")
        try stage.run("DROP TABLE realtime.messages_2001_01_01")
        #expect(try partitions() == (-1...3).map { try name($0) } + ["messages_of_ours"])
        #expect(
            try stage.column("SELECT DISTINCT tableowner FROM pg_tables WHERE tablename = '\(name(2))'")
                == ["supabase_realtime_admin"])
        #expect(try keep(0) == ["{}", "{\(name(-1))}", "{}", "{}"], "yesterday is over")
        #expect(try keep(0) == ["{}", "{}", "{}", "{}"], "and is not made again")
    }

    @Test func `one at a time looks after them`() throws {
        let other = try stage.database.cluster.connect(database: stage.database.name)
        try stage.run("DROP TABLE realtime.\(name(3))")
        try other.execute("BEGIN; SELECT tidewire.keep_messages()")
        #expect(try keep(72) == ["{}", "{}", "{}", "{}"])
        try other.execute("ROLLBACK")
        #expect(try keep(72) == ["{\(name(3))}", "{}", "{}", "{}"])
    }

    @Test func `what is locked is postponed`() throws {
        let other = try stage.database.cluster.connect(database: stage.database.name)
        let old = try name(-1)
        try other.execute("BEGIN; SELECT count(*) FROM realtime.messages")
        #expect(try keep(0) == ["{}", "{}", "{\(old)}", "{}"])
        try other.execute("ROLLBACK")
        #expect(try keep(0) == ["{}", "{\(old)}", "{}", "{}"])
    }

    @Test func `only the hub's logins may call what is ours`() throws {
        let probes = "SELECT tidewire.add_channel_probes('{t}', '{broadcast}', ARRAY[gen_random_uuid()])"
        let keep = "SELECT tidewire.keep_messages()"
        for (role, mayProbe, mayKeep) in [
            ("tidewire", true, true), ("tidewire_policies", true, false), ("anon", false, false),
            ("authenticated", false, false), ("service_role", false, false),
        ] {
            for (statement, may) in [(probes, mayProbe), (keep, mayKeep)] {
                var error: PostgresError?
                do {
                    _ = try stage.asClient(role, statement)
                } catch let refusal as PostgresError {
                    error = refusal
                }
                #expect(error?.sqlState == (may ? nil : SQLState.insufficientPrivilege), "\(role): \(statement)")
            }
        }
    }
}
