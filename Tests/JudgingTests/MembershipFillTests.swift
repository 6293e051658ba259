import Change
import Embedded
import Foundation
import Policy
import Postgres
import TestSupport
import Testing

@testable import Asking
@testable import Catalog
@testable import Judging

/// Tests of memberships, terms over claims and explanations, and of the snapshot of the database that they use.
@Suite(.within(minutes: 10)) struct MembershipFillTests {
    private static let members = """
        CREATE TABLE members (room int, member uuid);
        INSERT INTO members SELECT n % 3, ('00000000-0000-4000-8000-' || lpad(to_hex(n % 5), 12, '0'))::uuid
            FROM generate_series(1, 30) n;
        INSERT INTO members VALUES (NULL, '00000000-0000-4000-8000-000000000001');
        """

    private func membership(_ reader: Membership.Reader = .caller, table: UInt32 = 0) -> Membership {
        Membership(
            table: table, keySlot: 0, condition: .undecided, reader: reader,
            fillSQL: """
                SELECT m.room FROM public.members m WHERE m.member
                    = ((current_setting('request.jwt.claims', true)::jsonb ->> 'sub')::uuid)
                """)
    }

    private func keys(_ fill: MembershipFill?) -> [String?: Int]? {
        guard case .filled(let filled) = fill else { return nil }
        return Dictionary(
            filled.keys.map { ($0.text.map { String(decoding: $0, as: UTF8.self) }, $0.count) }, uniquingKeysWith: +)
    }

    private func table(_ stage: JudgingStage) throws -> UInt32 {
        try #require(UInt32(try stage.database.value("SELECT 'members'::regclass::oid") ?? ""))
    }

    @Test func `holders get the keys that they may read`() throws {
        let stage = try JudgingStage(Self.members)
        let judge = try stage.judge()
        let (one, broken, none) = (stage.subject(sub: 1), stage.subject("broken"), stage.subject(sub: 99))
        let refused = judge.fills([(membership(), one)])
        guard case .failed(let state) = refused.first else { throw Unexpected() }
        #expect(state == SQLState.insufficientPrivilege)
        try stage.run("GRANT SELECT ON members TO READER")
        let fills = judge.fills([
            (membership(), one), (membership(), broken), (membership(), none), (membership(), one),
        ])
        #expect(keys(fills[0]) == ["0": 2, "1": 2, "2": 2, nil: 1])
        #expect(keys(fills[1]) == nil)
        #expect(keys(fills[2]) == [:])
        #expect(keys(fills[3]) == keys(fills[0]))
        try stage.run(
            "ALTER TABLE members ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON members USING (room = 1 AND auth.uid() IS NOT NULL)"
        )
        #expect(keys(judge.fills([(membership(), one)]).first) == ["1": 2])
        guard case .filled(let filled) = judge.fills([(membership(), one)]).first else { throw Unexpected() }
        #expect(filled.position > .zero && filled.snapshot.firstUnassigned > 0)
    }

    @Test func `keys that a crash could take back do not count, and are asked for again`() throws {
        let cluster = try TestCluster.fresh()
        defer { cluster.stop() }
        let stage = try JudgingStage(on: cluster, Self.members)
        try stage.run(
            """
            GRANT SELECT ON members TO READER;
            ALTER DATABASE \(stage.database.name) SET synchronous_commit = off
            """)
        let judge = try stage.judge()
        let subject = stage.subject(sub: 1)
        #expect(keys(judge.fills([(membership(), subject)]).first) == ["0": 2, "1": 2, "2": 2, nil: 1])
        let writer = try stage.database.value("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'")
        let pid = try #require(writer.flatMap { pid_t($0) })
        kill(pid, SIGSTOP)
        defer { kill(pid, SIGCONT) }
        try stage.run("BEGIN; SET LOCAL synchronous_commit = off; DELETE FROM members WHERE room IS NULL; COMMIT")
        let fill = try #require(judge.fills([(membership(), subject)]).first)
        #expect("\(fill)" == "unavailable")
        kill(pid, SIGCONT)
        #expect(eventually { keys(judge.fills([(membership(), subject)]).first) == ["0": 2, "1": 2, "2": 2] })
    }

    /// Checks which errors count against the subject, who then sees nothing until the catalog changes.
    @Test(arguments: [
        ("22012", "failed"), ("P0001", "failed"), ("42501", "failed"), ("42P01", "unreadable"),
        ("40001", "unavailable"),
        ("55P03", "unavailable"), ("XX000", "unavailable"), ("XX001", "unavailable"),
    ])
    func `an error is the subject's only if it would come again`(state: String, expected: String) throws {
        let stage = try JudgingStage(
            Self.members + """
                CREATE FUNCTION fails() RETURNS boolean LANGUAGE plpgsql STABLE
                AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = '\(state)'; END $$;
                GRANT SELECT ON members TO READER;
                ALTER TABLE members ENABLE ROW LEVEL SECURITY;
                CREATE POLICY p ON members USING (fails());
                """)
        let fill = try #require(try stage.judge().fills([(membership(), stage.subject(sub: 1))]).first)
        #expect("\(fill)".hasPrefix(expected), "\(fill)")
    }

    @Test func `an owner's view is read by the hub's own login alone, and only where no policy decides`() throws {
        let stage = try JudgingStage(
            Self.members + "ALTER TABLE members ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON members USING (false);")
        let membership = membership(.definer(10), table: try table(stage))
        let one = stage.subject(sub: 1)
        let judge = try stage.judge()
        let all: [String?: Int] = ["0": 2, "1": 2, "2": 2, nil: 1]
        // Each step changes a right of the hub's login. A missing right is not attributed to the subject.
        let steps = [
            "SELECT 1", "GRANT SELECT ON members TO HUB", "DROP POLICY p ON members",
            "CREATE POLICY own ON members USING (member = auth.uid())", "ALTER POLICY own ON members TO READER",
            "CREATE POLICY hub ON members FOR SELECT TO HUB USING (room > 0)",
        ]
        for step in steps {
            try stage.run(step)
            guard case .unreadable = judge.fills([(membership, one)]).first else { throw Unexpected() }
        }
        try stage.run("ALTER POLICY hub ON members USING (true)")
        #expect(keys(judge.fills([(membership, one)]).first) == all)
        try stage.run("REVOKE SELECT ON members FROM HUB")
        guard case .unreadable = judge.fills([(membership, one)]).first else { throw Unexpected() }
        try stage.run("GRANT SELECT ON members TO HUB; ALTER ROLE HUB BYPASSRLS; DROP POLICY hub ON members")
        #expect(keys(judge.fills([(membership, one)]).first) == all)
        // Policies apply to this owner, too, so the owner reads fewer rows.
        try stage.run("ALTER ROLE READER NOLOGIN; GRANT SELECT ON members TO READER")
        let reader = try #require(UInt32(try stage.database.value("SELECT '\(stage.role)'::regrole::oid") ?? ""))
        let bound = self.membership(.definer(reader), table: try table(stage))
        guard case .unreadable = judge.fills([(bound, one)]).first else { throw Unexpected() }
        // Without a login for policies, the hub's own login reads only tables whose rows no policy restricts.
        let alone = try stage.judgeAlone(stage.logins.hub)
        #expect(eventually { alone.availability != .unknown })
        let asCaller = self.membership(.caller, table: try table(stage))
        try stage.run("GRANT SELECT ON members TO READER")
        guard case .unreadable = alone.fills([(asCaller, one)]).first else { throw Unexpected() }
        try stage.run("ALTER TABLE members DISABLE ROW LEVEL SECURITY")
        #expect(keys(alone.fills([(asCaller, one)]).first) == ["0": 2, "1": 2, "2": 2, nil: 1])
    }

    /// Checks a moment in which the hub could not find out if its login may read the table. The hub must not give up
    /// the membership, because PostgreSQL would then use the current members.
    @Test func `what cannot be found out now is asked again`() throws {
        let stage = try JudgingStage(
            Self.members + "GRANT SELECT ON members TO HUB; ALTER TABLE members ENABLE ROW LEVEL SECURITY;")
        try stage.run("CREATE POLICY hub ON members TO HUB USING (true)")
        let membership = membership(.definer(10), table: try table(stage))
        let (judge, one) = (try stage.judge(), stage.subject(sub: 1))
        #expect(keys(judge.fills([(membership, one)]).first) != nil)
        let other = try stage.database.cluster.connect(database: stage.database.name)
        try other.execute("BEGIN; LOCK TABLE pg_catalog.pg_policy IN ACCESS EXCLUSIVE MODE")
        guard case .unavailable = judge.fills([(membership, one)]).first else { throw Unexpected() }
        try other.execute("ROLLBACK")
        #expect(keys(judge.fills([(membership, one)]).first) != nil)
    }

    @Test func `terms are evaluated for each holder, and fail for each alone`() throws {
        let stage = try JudgingStage()
        let text = TypeFacts(oid: 25, name: "text")
        let terms = [
            AskedTerm(sql: "auth.uid()", type: text, isBuiltIn: false),
            AskedTerm(sql: "current_setting('request.jwt.claims', true)", type: text, isBuiltIn: true),
            AskedTerm(sql: "NULL::text", type: text, isBuiltIn: true),
            AskedTerm(
                sql: "(1 / length(replace(current_setting('request.jwt.claims'), '{}', '')) = 0)", type: text,
                isBuiltIn: true),
        ]
        let judge = try stage.judge()
        #expect(
            judge.value(terms, stage.subject("broken")) == [
                terms[0]: .failed, terms[1]: .value(Array("broken".utf8)), terms[2]: .value(nil),
                terms[3]: .value(Array("true".utf8)),
            ])
        #expect(
            judge.value(terms, stage.subject("{}")) == [
                terms[0]: .value(nil), terms[1]: .value(Array("{}".utf8)), terms[2]: .value(nil), terms[3]: .failed,
            ])
        // Built-in functions may run as any role.
        let alone = try stage.judgeAlone(stage.logins.hub)
        #expect(eventually { alone.availability != .unknown })
        #expect(alone.value([terms[1]], stage.subject("x")) == [terms[1]: .value(Array("x".utf8))])
        #expect(alone.value(terms, stage.subject("x")) == nil)
        let role = AskedTerm(sql: "CURRENT_USER", type: text, isBuiltIn: true)
        for judge in [judge, alone] {
            #expect(judge.value([role], stage.subject("x")) == [role: .value(Array(stage.role.utf8))])
        }
    }

    @Test func `what is of a time zone is written as the stream writes it`() throws {
        let stage = try JudgingStage()
        try stage.run("ALTER DATABASE \(stage.database.name) SET timezone = 'Asia/Kathmandu'")
        let moment = TypeFacts(oid: 1184, name: "timestamp with time zone")
        let expected = [
            ("'2024-01-01 00:00:00.5+05:45'::timestamptz", "2023-12-31 18:15:00.5+00"),
            ("'infinity'::timestamptz", "infinity"),
            ("'0044-03-15 12:00:00+00 BC'::timestamptz", "0044-03-15 12:00:00+00 BC"),
            (
                "to_timestamp((current_setting('request.jwt.claims')::jsonb ->> 'exp')::float8)",
                "2001-09-09 01:46:40+00"
            ),
        ]
        let judge = try stage.judge()
        for (sql, text) in expected {
            let term = AskedTerm(sql: sql, type: moment, isBuiltIn: true)
            let subject = stage.subject(#"{"exp": 1e9, "exp": 1e9, "a": 1.0}"#)
            #expect(judge.value([term], subject) == [term: .value(Array(text.utf8))])
        }
        #expect(
            judge.value([PolicyEvaluator.canonicalClaims], stage.subject(#"{"b":1e2,  "b":1.0}"#))
                == [PolicyEvaluator.canonicalClaims: .value(Array(#"{"b": 1.0}"#.utf8))])
    }

    @Test func `nothing is asked before the transaction can be seen`() throws {
        let stage = try JudgingStage(Self.members + "GRANT SELECT ON members TO READER;")
        let judge = try stage.judge()
        let writer = try stage.database.cluster.connect(database: stage.database.name)
        try writer.execute("BEGIN")
        try writer.execute("INSERT INTO members VALUES (77, '\(SampleUUID.text(42))')")
        let xid = try #require(
            UInt32(try writer.execute("SELECT pg_current_xact_id()::xid").first?.first.flatMap { $0 } ?? ""))
        let policy = try stage.judged(
            "id IN (SELECT m.room FROM public.members m WHERE m.member = auth.uid())", [("id", "integer")])
        let subjects = [stage.subject(sub: 42)]
        #expect(judge.answers(policy, [["77"]], subjects) == [[false]])
        let answers = Awaited<[PolicyAnswers]>()
        judge.ask([PolicyQuestion(policy, rows: [["77"]], subjects: subjects)], seeing: xid) { answers.set($0) }
        let fills = Awaited<[MembershipFill]>()
        judge.fill([(membership(), subjects[0])], seeing: xid) { fills.set($0) }
        try writer.execute("SELECT pg_sleep(0.2)")
        try writer.execute("COMMIT")
        #expect(answers.wait()?.first?[0, 0] == .some(true))
        #expect(keys(fills.wait()?.first) == ["77": 1])
        guard case .filled(let filled) = fills.wait()?.first else { throw Unexpected() }
        #expect(filled.snapshot.contains(xid))
        // The wait for a transaction that never ends is limited.
        try writer.execute("BEGIN")
        let open = try #require(
            UInt32(try writer.execute("SELECT pg_current_xact_id()::xid").first?.first.flatMap { $0 } ?? ""))
        #expect(judge.answers(policy, [["77"]], subjects, seeing: open) == [[nil]])
        try writer.execute("ROLLBACK")
        #expect(judge.answers(policy, [["77"]], subjects, seeing: open) == [[true]])
    }

    @Test func `an operator is told what each expression is`() throws {
        let stage = try JudgingStage()
        let explanation = PolicyExplanation(
            row: try stage.row([("id", "bigint"), ("owner", "uuid")]), texts: ["7", SampleUUID.text(3)],
            subject: stage.subject(sub: 3),
            expressions: [
                "owner = auth.uid()", "id + 1", "1 / (id - 7)", "nothing", "NULL", "notes.id", "pg_sleep(60)",
            ])
        let answers = Awaited<[ExplainedValue]?>()
        try stage.judge().explain(explanation) { answers.set($0) }
        let values = try #require(answers.wait() ?? nil)
        #expect(Array(values[0...1]) == [.value("true"), .value("8")])
        #expect(values[2] == .failed(sqlState: "22012", message: "division by zero"))
        guard case .failed(sqlState: "42703", _) = values[3] else { throw Unexpected() }
        #expect(Array(values[4...5]) == [.value(nil), .value("7")])
        guard case .failed(sqlState: SQLState.queryCanceled, _) = values[6] else { throw Unexpected() }
    }

    private struct Unexpected: Error {}
}
