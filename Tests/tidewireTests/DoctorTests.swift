import System
import TestSupport
import Testing

@testable import Console
@testable import tidewire

/// Database of an app whose tables have faults, with the documented logins.
private struct DoctorStage {
    let database: TestDatabase
    let logins: DocumentedLogins
    static let ana = "00000000-0000-4000-8000-00000000000a"

    init(_ sql: String, published: String) throws {
        database = try TestDatabase()
        try database.applyFoundation()
        logins = try database.documentedLogins()
        try database.run(
            """
            GRANT USAGE ON SCHEMA tidewire TO \(logins.hubName);
            GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tidewire TO \(logins.hubName)
            """)
        try database.run("\(sql); ALTER PUBLICATION supabase_realtime ADD TABLE \(published)")
    }

    func run(_ words: String..., claims: String? = nil, hasLogin: Bool = true) async -> Run {
        let login = hasLogin ? ["--policy-database-url", logins.policyURL] : []
        return await tidewireTests.run(
            ["doctor", "--database-url", logins.hubURL, "--jwt-secret", "a secret of this test that is long enough"]
                + login + (claims == nil ? [] : ["--claims", "c"]) + words,
            commands: [DoctorCommand()], files: claims.map { ["c": $0] } ?? [:])
    }

    /// Returns the findings about one table.
    func findings(_ table: String, _ words: String...) async -> [String] {
        let result = await tidewireTests.run(
            [
                "doctor", "--database-url", logins.hubURL, "--policy-database-url", logins.policyURL, "--json",
                "--table",
                table,
            ] + words, commands: [DoctorCommand()])
        return result.output.split(separator: "\n").map(String.init).filter { $0.hasPrefix(#"{"area":"tables""#) }
    }
}

@Suite(.within(minutes: 10)) struct DoctorTests {
    private static let tables = """
        CREATE TABLE fine (id int PRIMARY KEY, owner uuid); ALTER TABLE fine REPLICA IDENTITY FULL;
        ALTER TABLE fine ENABLE ROW LEVEL SECURITY;
        CREATE POLICY own ON fine FOR SELECT TO authenticated USING (owner = auth.uid());
        CREATE TABLE open (id int PRIMARY KEY); ALTER TABLE open REPLICA IDENTITY FULL;
        CREATE TABLE shut (id int PRIMARY KEY); ALTER TABLE shut REPLICA IDENTITY FULL;
        ALTER TABLE shut ENABLE ROW LEVEL SECURITY;
        CREATE TABLE keyed (id int PRIMARY KEY, owner uuid); ALTER TABLE keyed ENABLE ROW LEVEL SECURITY;
        CREATE POLICY own ON keyed FOR SELECT USING (owner = auth.uid());
        CREATE TABLE ungranted (id int PRIMARY KEY); ALTER TABLE ungranted REPLICA IDENTITY FULL;
        CREATE TABLE asked (id int PRIMARY KEY, path text); ALTER TABLE asked REPLICA IDENTITY FULL;
        ALTER TABLE asked ENABLE ROW LEVEL SECURITY;
        CREATE POLICY hard ON asked FOR SELECT USING (id > 0 AND md5(path) = 'x');
        CREATE TABLE members (room int, person uuid, PRIMARY KEY (room, person));
        CREATE TABLE rooms (id int PRIMARY KEY); ALTER TABLE rooms REPLICA IDENTITY FULL;
        ALTER TABLE rooms ENABLE ROW LEVEL SECURITY;
        CREATE POLICY of_members ON rooms FOR SELECT USING (id IN (SELECT room FROM members WHERE person = auth.uid()));
        REVOKE ALL ON ungranted FROM anon, authenticated; GRANT SELECT ON fine, open, shut, keyed, asked, rooms, members TO anon, authenticated;
        """
    private static let published = "fine, open, shut, keyed, ungranted, asked, rooms"

    @Test func `of each table it is said what each role may expect`() async throws {
        let stage = try DoctorStage(Self.tables, published: Self.published)
        try stage.database.run("DROP PUBLICATION IF EXISTS tidewire_internal")
        func says(_ table: String, _ parts: String...) async {
            let lines = await stage.findings(table)
            #expect(lines.contains { line in parts.allSatisfy { line.contains($0) } }, "\(parts): \(lines)")
        }
        await says("fine", "for authenticated", #""state":"ok""#, #"rows that policies allow: \"own\""#)
        await says("fine", "for anon", #""state":"ok""#, "no policy lets role anon SELECT", #""sql":null"#)
        await says("open", "for anon and authenticated", "no row level security", "ENABLE ROW LEVEL SECURITY")
        await says(
            "shut", "for authenticated", "no policy lets role authenticated SELECT",
            #""state":"wrong","required":true"#,
            "CREATE POLICY … ON public.shut FOR SELECT TO authenticated")
        await says(
            "keyed", "last version is in the server's event log", "ALTER TABLE public.keyed REPLICA IDENTITY FULL;")
        await says("ungranted", "for anon", "Error 401", "GRANT SELECT ON public.ungranted TO anon;")
        await says("asked", #"PostgreSQL decides policy \"hard\" for every row"#, "md5(path)")
        await says(
            "rooms", #"policy \"of_members\" reads public.members"#,
            "ALTER PUBLICATION tidewire_internal ADD TABLE ONLY public.members;")
    }

    @Test func `the servers of a cluster are checked, each fault with the line that repairs it`() async throws {
        let stage = try DoctorStage("CREATE TABLE a (id int PRIMARY KEY)", published: "a")
        var options = NatsServers.Options(count: 1)
        options.syncInterval = nil
        options.login = .user("hub", password: "hunter2")
        let servers = try NatsServers(options)
        let words = ["--cluster", servers.url, "--cluster-monitor", servers.monitorURL]
        let refused = await stage.run("--json", words[0], words[1], words[2], words[3])
        let lines = refused.output.split(separator: "\n").filter { $0.contains(#""area":"cluster""#) }
        #expect(lines.count == 2 && lines.allSatisfy { $0.contains(#""state":"wrong","required":true"#) }, "\(lines)")
        #expect(lines.first?.contains("sync_interval: always }") == true)
        #expect(
            refused.exitCode == .notFound && !refused.output.contains("hunter2") && !refused.errors.contains("hunter2"))
        let environment = ["TIDEWIRE_CLUSTER_TRIAL": "on", "TIDEWIRE_CLUSTER_REPLICAS": "1"]
        let trial = await tidewireTests.run(
            ["doctor", "--json", "--database-url", stage.logins.hubURL] + words, commands: [DoctorCommand()],
            environment: environment)
        let warnings = trial.output.split(separator: "\n").filter { $0.contains(#""area":"cluster""#) }
        #expect(warnings.count == 1 && warnings[0].contains(#""required":false"#), "\(trial)")
    }

    @Test func `what it says to run puts it right`() async throws {
        let stage = try DoctorStage(Self.tables, published: Self.published)
        // The CSV output is for a ticket or a spreadsheet. Each finding is a row, and nothing else is printed.
        let rows = await stage.run("-o", "csv").output.split(separator: "\n")
        #expect(rows.first == "AREA,STATE,REQUIRED,NAME,DETAIL,HINT,SQL" && rows.count > 20)
        #expect(
            rows.dropFirst().allSatisfy { $0.contains(",ok,") || $0.contains(",wrong,") || $0.contains(",missing,") })
        #expect(await stage.run("-o", "md").output.hasPrefix("| AREA | STATE |"))
        let script = await stage.run("--fix-sql")
        #expect(script.output.contains("\nALTER TABLE public.keyed REPLICA IDENTITY FULL;\n"), "\(script.output)")
        #expect(script.output.contains("\n-- to be decided: CREATE POLICY … ON public.shut"))
        #expect(!script.output.contains("CREATE POLICY … ON public.fine"), "it is closed to anon alone")
        #expect(
            script.output.contains("\n-- to be decided: GRANT SELECT ON public.ungranted TO anon;"),
            "nobody is shown more unasked")
        let statements = script.output.split(separator: "\n").filter { !$0.hasPrefix("--") }.joined(separator: "\n")
        try stage.database.run(statements)
        let again = await stage.run("--fix-sql")
        let left = again.output.split(separator: "\n").filter { !$0.hasPrefix("--") }
        #expect(left.isEmpty, "\(again.output)")
        #expect(await stage.findings("keyed").allSatisfy { !$0.contains("event log") })
        let rooms = await stage.findings("rooms")
        #expect(rooms.allSatisfy { !$0.contains("slower") }, "\(rooms)")
    }

    @Test func `somebody's view is what PostgreSQL shows him`() async throws {
        let stage = try DoctorStage(Self.tables, published: Self.published)
        try stage.database.run(
            """
            INSERT INTO fine VALUES (1, '\(DoctorStage.ana)'), (2, NULL), (3, '\(DoctorStage.ana)');
            INSERT INTO rooms VALUES (1), (2)
            """)
        let claims = #"{"role": "authenticated", "sub": "\#(DoctorStage.ana)", "email": "ana@x"}"#
        let result = await stage.run(claims: claims)
        #expect(result.output.contains("public.fine for authenticated: ana@x sees 2 of its rows\n"), "\(result.output)")
        #expect(result.output.contains("public.rooms for authenticated (optional): ana@x sees none of its rows\n"))
        #expect(result.output.contains("PostgreSQL refuses ana@x its rows: permission denied for table ungranted"))
        #expect(!result.output.contains(" for anon"))
    }

    @Test func `a policy that writes or becomes another changes nothing`() async throws {
        let stage = try DoctorStage(
            """
            CREATE TABLE seen (id int); GRANT ALL ON seen TO authenticated;
            CREATE TABLE bad (id int PRIMARY KEY); ALTER TABLE bad REPLICA IDENTITY FULL; INSERT INTO bad VALUES (1);
            CREATE FUNCTION note() RETURNS boolean LANGUAGE plpgsql AS
                $$ BEGIN PERFORM set_config('transaction_read_only', 'off', true); INSERT INTO seen VALUES (1); RETURN true; END $$;
            ALTER TABLE bad ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON bad FOR SELECT USING (note());
            GRANT SELECT ON bad TO authenticated
            """, published: "bad")
        let result = await stage.run(claims: #"{"role": "authenticated"}"#)
        #expect(result.output.contains("public.bad for authenticated"), "\(result.output)")
        #expect(try stage.database.value("SELECT count(*) FROM seen") == "0")
    }

    @Test func `the status is for scripts`() async throws {
        let stage = try DoctorStage(Self.tables, published: Self.published.replacing("shut, ", with: ""))
        let usual = await stage.run()
        #expect(usual.exitCode == .ok, "\(usual.output)")
        // No client receives the first table's changes, and PostgreSQL refuses updates of the second.
        for table in ["shut", "keyless"] {
            try stage.database.run(
                "CREATE TABLE IF NOT EXISTS \(table) (v int); ALTER PUBLICATION supabase_realtime ADD TABLE \(table)")
            #expect(await stage.run().exitCode == .notFound, "\(table)")
            try stage.database.run("ALTER PUBLICATION supabase_realtime DROP TABLE \(table)")
        }
        #expect(await stage.run("--strict").exitCode == .notFound)
        #expect(await stage.run("--table", "nothing").exitCode == .notFound)
        #expect(await stage.run("--table", "a.b.c").exitCode == .usage)
        #expect(await stage.run("--sub", "x").exitCode == .usage)
        #expect(await stage.run(claims: "no object").exitCode == .usage)
        try stage.database.run("DROP PUBLICATION supabase_realtime")
        let without = await stage.run()
        #expect(without.exitCode == .notFound)
        #expect(without.output.contains("missing  supabase_realtime: does not exist"), "\(without.output)")
    }

    @Test func `without a key for tokens nobody comes in`() async throws {
        let stage = try DoctorStage("CREATE TABLE one (id int PRIMARY KEY)", published: "one")
        let result = await tidewireTests.run(
            ["doctor", "--database-url", stage.logins.hubURL], commands: [DoctorCommand()])
        #expect(result.exitCode == .notFound)
        #expect(result.output.contains("  missing  tokens: the hub has no key to check tokens with"))
    }
}
