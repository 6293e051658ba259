import Embedded
import Postgres
import System
import TestSupport
import Testing

@testable import Messages

@Suite(.serialized, .within(minutes: 10)) struct JanitorTests {
    private func prepared() throws -> TestDatabase {
        let database = try TestDatabase(on: TestCluster.fresh(clientRoles: false))
        try database.applyFoundation()
        try database.run("ALTER ROLE tidewire PASSWORD 'hub'")
        return database
    }

    private func hub(_ database: TestDatabase) -> ConnectionTarget {
        ConnectionTarget(database.cluster.url(user: "tidewire", password: "hub", database: database.name))
    }

    private func partitions(_ database: TestDatabase) throws -> String? {
        try database.value(
            "SELECT count(*) FROM pg_inherits WHERE inhparent = 'realtime.messages'::regclass")
    }

    private func dropAll(_ database: TestDatabase) throws {
        try database.run(
            """
            DO $$ DECLARE name text; BEGIN
                FOR name IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'realtime.messages'::regclass LOOP
                    EXECUTE 'DROP TABLE ' || name;
                END LOOP;
            END $$
            """)
    }

    @Test func `the hub's own login makes partitions by the function`() throws {
        let database = try prepared()
        try dropAll(database)
        let janitor = try MessagesJanitor(hub(database), hours: 72)
        #expect(try eventually { try partitions(database) == "5" })
        janitor.stop()
        #expect(
            try database.value(
                """
                SELECT string_agg(DISTINCT relowner::regrole::text, ' ') FROM pg_class JOIN pg_inherits ON inhrelid = oid
                WHERE inhparent = 'realtime.messages'::regclass
                """) == "supabase_realtime_admin")
        database.cluster.stop()
    }

    @Test func `an owner's login makes and drops them itself`() throws {
        let database = try prepared()
        try dropAll(database)
        try database.run(
            """
            DROP SCHEMA tidewire CASCADE;
            CREATE TABLE realtime.messages_2020_01_01 PARTITION OF realtime.messages
                FOR VALUES FROM ('2020-01-01') TO ('2020-01-02');
            ALTER TABLE realtime.messages_2020_01_01 OWNER TO supabase_realtime_admin;
            CREATE TABLE realtime.messages_2020_01_02 PARTITION OF realtime.messages
                FOR VALUES FROM ('2020-01-02') TO ('2020-01-03');
            CREATE ROLE keeper LOGIN PASSWORD 'k'; GRANT supabase_realtime_admin TO keeper;
            """)
        let keeper = ConnectionTarget(
            database.cluster.url(user: "keeper", password: "k", database: database.name))
        let rounds = JanitorRounds(keeper, hours: 72, try Wake())
        #expect(rounds.round() > .seconds(3600))
        #expect(try partitions(database) == "6", "one is somebody else's")
        try database.run("DROP TABLE realtime.messages_2020_01_02")
        #expect(
            try database.value(
                """
                SELECT string_agg(DISTINCT relowner::regrole::text, ' ') FROM pg_class JOIN pg_inherits ON inhrelid = oid
                WHERE inhparent = 'realtime.messages'::regclass
                """) == "supabase_realtime_admin")
        // The second round has nothing to do.
        #expect(rounds.round() > .seconds(3600))
        #expect(try partitions(database) == "5")
        database.cluster.stop()
    }

    @Test func `what is locked is tried again soon, by either means`() throws {
        let database = try prepared()
        try database.run("CREATE ROLE keeper LOGIN PASSWORD 'k'; GRANT supabase_realtime_admin TO keeper")
        let keeper = ConnectionTarget(
            database.cluster.url(user: "keeper", password: "k", database: database.name))
        let reader = try database.cluster.connect(database: database.name)
        for target in [hub(database), keeper] {
            try reader.execute("BEGIN; SELECT count(*) FROM realtime.messages")
            #expect(JanitorRounds(target, hours: 0, try Wake()).round() < .seconds(100))
            #expect(try partitions(database) == "5")
            try reader.execute("COMMIT")
        }
        #expect(JanitorRounds(keeper, hours: 0, try Wake()).round() > .seconds(3600))
        #expect(try partitions(database) == "4")
        database.cluster.stop()
    }

    @Test func `a login without rights and a database without the table are left alone`() throws {
        let database = try prepared()
        try dropAll(database)
        try database.run("DROP SCHEMA tidewire CASCADE")
        #expect(JanitorRounds(hub(database), hours: 72, try Wake()).round() > .seconds(3600))
        #expect(try partitions(database) == "0")
        try database.run("DROP SCHEMA realtime CASCADE")
        #expect(JanitorRounds(hub(database), hours: 72, try Wake()).round() > .seconds(3600))
        database.cluster.stop()
    }

    @Test func `a partition that is missed is made soon and not at the next round`() throws {
        let database = try prepared()
        let janitor = try MessagesJanitor(hub(database), hours: 72)
        #expect(try eventually { try partitions(database) == "5" })
        try dropAll(database)
        janitor.isMissed()
        #expect(try eventually { try partitions(database) == "5" })
        janitor.stop()
        database.cluster.stop()
    }

    @Test func `it stops while the database is away and while it rests`() throws {
        let nowhere = try MessagesJanitor(ConnectionTarget("postgresql://nobody@127.0.0.1:1/none"), hours: 72)
        nowhere.stop()
        let database = try prepared()
        let janitor = try MessagesJanitor(hub(database), hours: 72)
        #expect(
            try eventually {
                try database.value(
                    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'realtime_janitor'") == "0"
            })
        janitor.stop()
        database.cluster.stop()
    }
}
