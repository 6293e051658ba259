import Embedded
import Policy
import Postgres
import TestSupport
import Testing

@testable import Asking
@testable import Catalog
@testable import Judging

/// Tests of the login that runs policies' expressions, and of the limits on these expressions.
@Suite(.within(minutes: 10)) struct PolicyLoginTests {
    private func availability(_ judge: PolicyEvaluator) -> PolicyAvailability {
        #expect(eventually { judge.availability != .unknown })
        return judge.availability
    }

    private func reason(_ judge: PolicyEvaluator) -> String? {
        guard case .refused(let reason, let hint) = availability(judge) else { return nil }
        #expect(!hint.isEmpty)
        return reason
    }

    @Test func `a login that is more than the client roles runs no policy`() throws {
        let stage = try JudgingStage()
        let subjects = [stage.subject("{}")]
        let yes = try stage.judged("true")
        let alone = try stage.judgeAlone(stage.database.target)
        #expect(reason(alone)?.contains("superuser") == true)
        #expect(alone.answers(yes, [["1"]], subjects) == [[nil]])
        let login = stage.login
        let other = "other_" + stage.database.name
        let cases = [
            ("ALTER ROLE \(login) BYPASSRLS", "ALTER ROLE \(login) NOBYPASSRLS", "bypasses"),
            (
                "CREATE ROLE \(other) BYPASSRLS; GRANT \(other) TO \(login)", "REVOKE \(other) FROM \(login)",
                "can become"
            ),
            ("GRANT pg_read_all_data TO \(login)", "REVOKE pg_read_all_data FROM \(login)", "pg_read_all_data"),
            ("CREATE TABLE t (); ALTER TABLE t OWNER TO \(login)", "DROP TABLE t", "owns tables"),
            ("ALTER ROLE \(login) CREATEROLE", "ALTER ROLE \(login) NOCREATEROLE", "create roles"),
            ("REVOKE \(stage.role) FROM \(login)", "GRANT \(stage.role) TO \(login)", "none of the client roles"),
        ]
        for (change, undo, expected) in cases {
            try stage.run(change)
            let judge = try stage.judge()
            #expect(reason(judge)?.contains(expected) == true, "\(change): \(judge.availability)")
            #expect(judge.answers(yes, [["1"]], subjects) == [[nil]], "\(change)")
            try stage.run(undo)
        }
        let judge = try stage.judge()
        #expect(availability(judge) == .available)
        #expect(judge.answers(yes, [["1"]], subjects) == [[true]])
    }

    @Test func `the role of sql for policies is fit, and the hub's own is not`() throws {
        let cluster = try TestCluster.fresh()
        defer { cluster.stop() }
        let demo = try DemoDatabase(in: cluster)
        try cluster.connect().execute("CREATE TABLE public.bare ()")
        let hub = try PolicyEvaluator(PolicyEvaluator.Settings(database: ConnectionTarget(demo.hubURL)))
        defer { hub.stop() }
        #expect(reason(hub)?.contains("replication slots") == true)
        let judge = try PolicyEvaluator(
            PolicyEvaluator.Settings(
                database: ConnectionTarget(demo.hubURL), policies: ConnectionTarget(demo.policyURL)))
        defer { judge.stop() }
        #expect(availability(judge) == .available)
        let policy = JudgedPolicy(
            role: "authenticated", row: JudgedRow(relation: "bare", schema: "public", columns: []), table: 1,
            sql: "auth.uid() IS NOT NULL", version: 1)
        let claims = ["{}", #"{"sub": "\#(SampleUUID.text(1))"}"#]
        let subjects = claims.map { PolicySubject(role: "authenticated", claims: $0, identity: 0) }
        #expect(judge.answers(policy, [[]], subjects) == [[false, true]])
    }

    @Test func `a policy's function becomes nothing and leaves nothing behind`() throws {
        let stage = try JudgingStage(
            """
            CREATE TABLE trail (what text);
            GRANT ALL ON trail TO READER, PUBLIC;
            CREATE SEQUENCE steps;
            GRANT ALL ON steps TO PUBLIC;
            CREATE FUNCTION attempt(what text) RETURNS bool LANGUAGE plpgsql AS $$
                BEGIN
                    EXECUTE what;
                    RETURN true;
                END $$;
            CREATE FUNCTION is_more() RETURNS bool LANGUAGE sql AS $$
                SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = current_user AND (rolsuper OR rolbypassrls)) $$;
            """)
        let judge = try stage.judge()
        let subjects = [stage.subject("{}")]
        let policy = try stage.judged("public.attempt(what)", [("what", "text")])
        let refused = [
            "SELECT set_config('role', 'postgres', true)", "SET ROLE postgres", "SET SESSION AUTHORIZATION postgres",
            "SET SESSION AUTHORIZATION DEFAULT; SET ROLE postgres", "RESET ROLE; SET ROLE postgres",
            "INSERT INTO public.trail VALUES ('was here')", "SET transaction_read_only = off",
            "SELECT set_config('transaction_read_only', 'off', true)",
            "SET LOCAL default_transaction_read_only = off; INSERT INTO public.trail VALUES ('x')",
            "CREATE TEMP TABLE notes ()", "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "SELECT nextval('public.steps')", "COMMIT", "DROP TABLE public.trail",
            "ALTER ROLE \(stage.login) SUPERUSER", "COPY public.trail TO PROGRAM 'true'",
            "SELECT pg_read_file('/etc/passwd')", "DO $x$ BEGIN RESET ROLE; SET ROLE postgres; END $x$",
            "GRANT postgres TO \(stage.login)",
            "RESET ROLE; SELECT pg_create_logical_replication_slot('\(stage.login)', 'test_decoding')",
        ]
        for attempt in refused {
            #expect(judge.answers(policy, [[attempt]], subjects) == [[nil]], "\(attempt)")
        }
        // Allowed statements have no effect after the answer.
        for attempt in [
            "RESET ROLE", "LISTEN x; NOTIFY x", "SET search_path = public", "SET row_security = off",
            "SET statement_timeout = 0",
        ] {
            #expect(judge.answers(policy, [[attempt]], subjects) == [[true]], "\(attempt)")
        }
        let after = try stage.judged(
            "NOT public.is_more() AND current_user = '\(stage.role)' AND current_setting('row_security') = 'on' AND "
                + "current_setting('statement_timeout') <> '0' AND current_setting('transaction_read_only') = 'on'")
        #expect(judge.answers(after, [["1"]], subjects) == [[true]])
        #expect(try stage.database.value("SELECT count(*) FROM trail") == "0")
        let lock = try stage.judged("pg_advisory_lock(4711) IS NOT NULL")
        #expect(judge.answers(lock, [["1"]], subjects) == [[true]])
        #expect(try stage.database.value("SELECT pg_try_advisory_lock(4711)") == "t")
    }

    @Test func `roles that the login cannot become, or that are none, let nobody read`() throws {
        let stage = try JudgingStage()
        let judge = try stage.judge()
        for role in [
            stage.login, "postgres", "service_role", "no such role", "none", "x'; --", "\"'\u{301}; SELECT 1; --", "",
        ] {
            let policy = JudgedPolicy(
                role: role, row: try stage.row([]), table: 1, sql: "true", version: 1)
            let answers = judge.answers(policy, [[]], [stage.subject("{}", role: role)])
            #expect(answers == [[nil]], "\(role)")
        }
    }

    @Test func `policies run without functions where none can be made`() throws {
        let stage = try JudgingStage(
            """
            CREATE TABLE members (room int, member uuid);
            INSERT INTO members SELECT n, ('00000000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid
                FROM generate_series(1, 20) n;
            GRANT SELECT ON members TO READER;
            """)
        try stage.run("REVOKE TEMP ON DATABASE \(stage.database.name) FROM PUBLIC")
        let judge = try stage.judge()
        let policy = try stage.judged(
            "100 / (room - 3) > -1000 AND room IN (SELECT m.room FROM public.members m WHERE m.member = auth.uid())",
            [("room", "integer")])
        let subjects = (0..<25).map { $0 == 13 ? stage.subject("broken") : stage.subject(sub: $0) }
        let rooms = (0..<30).map { ["\($0)"] as [String?] }
        let answers = judge.answers(policy, rooms, subjects)
        for room in rooms.indices where room != 3 {
            for holder in subjects.indices where holder != 13 {
                #expect(answers[room][holder] == (room == holder && room > 0 && room <= 20), "\(room) \(holder)")
            }
            #expect(answers[room][13] != true)
        }
        #expect(answers[3].allSatisfy { $0 != true })
        let hanging = try stage.judged("pg_sleep(60) IS NULL")
        #expect(judge.answers(hanging, [["1"]], [stage.subject("{}")]) == [[nil]])
        let term = AskedTerm(sql: "auth.uid()", type: TypeFacts(oid: 2950, name: "uuid"), isBuiltIn: false)
        #expect(judge.value([term], stage.subject(sub: 3)) == [term: .value(Array(SampleUUID.text(3).utf8))])
        let membership = Membership(
            table: 0, keySlot: 0, condition: .undecided, reader: .caller,
            fillSQL: "SELECT m.room FROM public.members m WHERE m.member = auth.uid()")
        let fills = judge.fills([(membership, stage.subject(sub: 3)), (membership, stage.subject("broken"))])
        #expect(fills.map(keys) == [["3": 1], nil])
    }

    @Test func `names mean to a policy what they mean to a client`() throws {
        let stage = try JudgingStage(
            """
            CREATE SCHEMA app;
            CREATE SCHEMA other;
            GRANT USAGE ON SCHEMA app, other TO READER;
            CREATE FUNCTION app.which() RETURNS text LANGUAGE sql AS 'SELECT ''app''::text';
            CREATE FUNCTION other.which() RETURNS text LANGUAGE sql AS 'SELECT ''other''::text';
            CREATE FUNCTION other.lower(text) RETURNS text LANGUAGE sql AS 'SELECT ''stolen''::text';
            CREATE FUNCTION public.ask() RETURNS text LANGUAGE plpgsql AS 'BEGIN RETURN which(); END';
            """)
        let subjects = [stage.subject("{}")]
        let policy = try stage.judged(
            "public.ask() = label AND lower('A') = 'a'"
                + " AND '2024-07-01 00:00:00+00'::timestamp with time zone::text = '2024-07-01 02:00:00+02'",
            [("label", "text")])
        try stage.run("ALTER DATABASE \(stage.database.name) SET search_path = app")
        try stage.run("ALTER DATABASE \(stage.database.name) SET timezone = 'Europe/Berlin'")
        #expect(try stage.judge().answers(policy, [["app"], ["other"]], subjects) == [[true], [false]])
        try stage.run(
            "ALTER ROLE READER IN DATABASE \(stage.database.name) SET search_path = other, \"$user\", pg_catalog")
        #expect(try stage.judge().answers(policy, [["app"], ["other"]], subjects) == [[false], [true]])
    }

    private func keys(_ fill: MembershipFill) -> [String?: Int]? {
        guard case .filled(let filled) = fill else { return nil }
        return Dictionary(
            filled.keys.map { ($0.text.map { String(decoding: $0, as: UTF8.self) }, $0.count) }, uniquingKeysWith: +)
    }
}
