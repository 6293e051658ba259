import Embedded
import Policy
import Postgres
import TestSupport
import Testing

@testable import Catalog
@testable import Judging

@Suite(.within(minutes: 10)) struct PolicyJudgeTests {
    private static let members = """
        CREATE TABLE members (room int, member uuid);
        CREATE TABLE notes (id bigint PRIMARY KEY, room int, owner uuid, body text);
        INSERT INTO notes SELECT n, n % 7, ('00000000-0000-4000-8000-' || lpad(to_hex(n % 5), 12, '0'))::uuid, 'note ' || n
            FROM generate_series(1, 50) n;
        INSERT INTO members SELECT n % 7, ('00000000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid
            FROM generate_series(1, 20) n;
        GRANT SELECT ON notes, members TO READER;
        ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
        """

    private func compare(_ stage: JudgingStage, _ claimants: [PolicySubject]) throws {
        let judge = try stage.judge()
        let answers = judge.answers(try stage.policy(of: "notes"), try stage.rows(of: "notes"), claimants)
        var allowed = 0
        for (index, claimant) in claimants.enumerated() {
            let shown = try stage.shown("notes", to: claimant)
            #expect(answers.map { $0[index] } == shown, "\(claimant.claims)")
            allowed += shown.count { $0 == true }
        }
        #expect(allowed > 0)
    }

    @Test func `answers are what the table itself shows`() throws {
        let stage = try JudgingStage(
            Self.members + """
                CREATE POLICY p ON notes FOR SELECT USING (
                    owner = auth.uid() OR room IN (SELECT room FROM members WHERE member = auth.uid()));
                """)
        try compare(stage, (0..<25).map { stage.claimant(sub: $0) })
    }

    @Test(.icu) func `columns are compared as the table compares them`() throws {
        let stage = try JudgingStage(
            """
            CREATE COLLATION nd (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
            CREATE TABLE notes (id bigint PRIMARY KEY, name text COLLATE nd, plain text);
            INSERT INTO notes VALUES (1, 'ABC', 'x'), (2, 'abc', 'X'), (3, 'b', 'b');
            GRANT SELECT ON notes TO READER;
            ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
            CREATE POLICY p ON notes FOR SELECT USING (name = 'abc' AND plain <> 'x');
            """)
        try compare(stage, [stage.claimant("{}")])
    }

    @Test func `claims that are none deny their holder alone`() throws {
        let stage = try JudgingStage(
            Self.members + "CREATE POLICY p ON notes FOR SELECT USING (owner = (SELECT auth.uid()))")
        let poisoned = [
            "", "no json", "{}", #"{"sub": null}"#, #"{"sub": ""}"#, #"{"sub": "not a uuid"}"#, #"{"sub": 1}"#,
            #"{"sub": {"a": [1]}}"#, #"{"sub": "{00000000-0000-4000-8000-000000000001}"}"#,
            #"{"sub": "00000000-0000-4000-8000-00000000000A", "sub": "00000000-0000-4000-8000-000000000002"}"#,
            #"{"sub": "\u0000"}"#, "[]", "null", #""text""#,
            #"{"a": "\#(String(repeating: "x", count: 100_000))", "sub": "\#(SampleUUID.text(3))"}"#,
            #"{"quote": "'\"\\{},NULL$tidewire0$", "sub": "\#(SampleUUID.text(4))"}"#,
        ]
        try compare(stage, poisoned.flatMap { [stage.claimant($0), stage.claimant(sub: 1)] })
    }

    @Test func `a row that fails denies itself alone`() throws {
        let stage = try JudgingStage(
            Self.members + "CREATE POLICY p ON notes FOR SELECT USING (100 / (id - 7) > 0 AND owner = auth.uid())")
        let judge = try stage.judge()
        let claimants = [stage.claimant(sub: 1), stage.claimant("broken"), stage.claimant(sub: 2)]
        let answers = judge.answers(try stage.policy(of: "notes"), try stage.rows(of: "notes"), claimants)
        for (row, answer) in answers.enumerated() where row != 6 {
            let id = row + 1
            #expect(answer[0] == (id > 7 && id % 5 == 1))
            #expect(answer[2] == (id > 7 && id % 5 == 2))
        }
        #expect(answers[6].allSatisfy { $0 != true })
        #expect(answers.allSatisfy { $0[1] != true })
    }

    @Test func `many rows do not make claims that fail any better`() throws {
        let stage = try JudgingStage()
        let judge = try stage.judge()
        let policy = try stage.judged("id > 20 OR 1 / (20 - id) > 0 OR auth.uid() IS NULL")
        let rows = (1...40).map { ["\($0)"] as [String?] }
        let answers = judge.answers(policy, rows, [stage.claimant(sub: 1), stage.claimant("broken")])
        #expect(answers.map { $0[0] } == (1...40).map { $0 == 20 ? nil : $0 == 19 || $0 > 20 })
        // The result does not depend on the arm that PostgreSQL evaluates first.
        #expect(answers.allSatisfy { $0[1] != false })
        let always = try stage.judged("auth.uid() IS NOT NULL AND id > 0")
        #expect(judge.answers(always, rows, [stage.claimant("broken")]) == rows.map { _ in [nil] })
    }

    @Test func `values of all kinds arrive as they are`() throws {
        let stage = try JudgingStage(
            """
            CREATE TYPE mood AS ENUM ('sad', 'it''s "ok"', 'back\\slash');
            CREATE DOMAIN positive AS int CHECK (VALUE > 0);
            CREATE TYPE pair AS (a int, b text);
            CREATE TABLE notes (
                id bigint PRIMARY KEY, "select" mood, tags text[], "quo""ted" positive, p pair, j jsonb, c char(5),
                v varchar(5), n numeric(10,2), t timestamptz, b bytea, r int4range, grid int[][], "Größe" float8);
            INSERT INTO notes VALUES
                (1, 'it''s "ok"', ARRAY['a"b', 'c\\d', NULL, '{x,y}', ''], 5, (1, 'x,"y)'), '{"k": "v\\"w"}', 'ab', 'ab',
                 1.10, '2024-01-01 00:00:00+02', '\\x00ff', '[1,5)', '[0:1][2:3]={{1,2},{3,4}}', 'NaN'),
                (2, 'back\\slash', '{}', 1, (NULL, ''), '[1, 2]', '', '', 'NaN', 'infinity', '', 'empty', '{}', '-0'),
                (3, NULL, NULL, NULL, NULL, 'null', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
            GRANT SELECT ON notes TO READER;
            ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
            CREATE POLICY p ON notes FOR SELECT USING (
                ("select" = 'it''s "ok"' AND tags[1] = 'a"b' AND tags[2] = 'c\\d' AND tags[3] IS NULL AND tags[5] = ''
                    AND tags[4] = '{x,y}' AND "quo""ted" = 5 AND (p).b = 'x,"y)' AND j ->> 'k' = 'v"w' AND c = 'ab'
                    AND v = 'ab' AND n = 1.1 AND t = '2023-12-31 22:00:00+00' AND b = '\\x00ff' AND r @> 4
                    AND grid[1][3] = 4 AND "Größe" = 'NaN' AND nullif(current_setting('request.jwt.claims'), '') = 'one')
                OR ("select" > 'it''s "ok"' AND tags = '{}' AND c = '     ' AND n = 'NaN' AND t = 'infinity' AND isempty(r)
                    AND "Größe" = 0 AND current_setting('request.jwt.claims') = 'two')
                OR (tags IS NULL AND j = 'null' AND c IS NULL AND current_setting('request.jwt.claims') = 'three'));
            """)
        try compare(stage, ["one", "two", "three", "four"].map { stage.claimant($0) })
    }

    @Test func `missing privileges, recursion and policies that are no SQL let nobody read`() throws {
        let stage = try JudgingStage(
            """
            CREATE TABLE hidden (id bigint);
            CREATE TABLE turning (id bigint);
            GRANT SELECT ON turning TO READER;
            ALTER TABLE turning ENABLE ROW LEVEL SECURITY;
            CREATE POLICY p ON turning USING (EXISTS (SELECT 1 FROM turning t WHERE t.id = turning.id));
            CREATE FUNCTION secret() RETURNS bool LANGUAGE sql AS 'SELECT true';
            REVOKE EXECUTE ON FUNCTION secret() FROM PUBLIC;
            """)
        let judge = try stage.judge()
        let policies = [
            "id IN (SELECT id FROM public.hidden)", "id IN (SELECT id FROM public.turning)", "public.secret()",
            "id = = 1",
            "no_such_column = 1", "1", "true); DROP TABLE public.hidden; --", "NULL", "false",
        ]
        for policy in policies {
            #expect(judge.answers(try stage.judged(policy), [["1"]], [stage.claimant("{}")]) != [[true]], "\(policy)")
        }
        #expect(judge.answers(try stage.judged("true"), [["1"]], [stage.claimant("{}")]) == [[true]])
        #expect(judge.answers(try stage.judged("true", []), [[], []], [stage.claimant("{}")]) == [[true], [true]])
    }

    @Test func `what a policy's function sets for one claimant is gone for the next`() throws {
        let stage = try JudgingStage(
            """
            CREATE FUNCTION remember() RETURNS text LANGUAGE plpgsql AS $$
                BEGIN
                    IF coalesce(current_setting('app.tenant', true), '') = '' THEN
                        PERFORM set_config('app.tenant', current_setting('request.jwt.claims'), true);
                        PERFORM set_config('app.lasting', current_setting('request.jwt.claims'), false);
                        PERFORM set_config('role', 'none', true);
                        RAISE WARNING 'for no log: %', current_setting('request.jwt.claims');
                    END IF;
                    RETURN current_setting('app.tenant');
                END $$;
            """)
        let judge = try stage.judge()
        let policy = try stage.judged(
            "public.remember() = label AND current_setting('request.jwt.claims') = label", [("label", "text")])
        let claimants = ["a", "b", "c"].map { stage.claimant($0) }
        for _ in 0..<2 {
            #expect(
                judge.answers(policy, [["a"], ["b"], ["c"]], claimants) == [
                    [true, false, false], [false, true, false], [false, false, true],
                ])
        }
        let left = try stage.judged("coalesce(current_setting('app.lasting', true), '') <> ''")
        #expect(judge.answers(left, [["1"]], claimants) == [[false, false, false]])
    }

    @Test func `a policy that hangs holds up no other, and is left alone for a while`() throws {
        let stage = try JudgingStage()
        let judge = try stage.judge()
        let hanging = try stage.judged("pg_sleep(60) IS NOT NULL")
        let found = Awaited<[PolicyAnswers]>()
        judge.ask([PolicyQuestion(hanging, rows: [["1"]], claimants: [stage.claimant("{}")])], seeing: nil) {
            found.set($0)
        }
        for number in 0..<20 {
            let policy = try stage.judged("id > \(number)")
            #expect(judge.answers(policy, [["10"]], [stage.claimant("{}")]) == [[number < 10]])
        }
        #expect(found.wait()?.first?[0, 0] == .some(nil))
        #expect(judge.answers(hanging, [["1"]], [stage.claimant("{}")]) == [[nil]])
    }

    @Test func `a slow policy is asked in smaller parts`() throws {
        let stage = try JudgingStage()
        let judge = try stage.judge()
        let slow = try stage.judged("pg_sleep(0.01) IS NOT NULL")
        let claimants = (0..<200).map { stage.claimant(sub: $0) }
        #expect(judge.answers(slow, [["1"]], claimants) == [Array(repeating: true, count: 200)])
    }

    @Test func `a lost connection is made again`() throws {
        let stage = try JudgingStage()
        let judge = try stage.judge()
        let policy = try stage.judged("id = 1")
        let claimants = [stage.claimant("{}")]
        #expect(judge.answers(policy, [["1"], ["2"]], claimants) == [[true], [false]])
        for _ in 0..<3 {
            try stage.run(
                """
                SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity
                WHERE application_name = 'tidewire policies' AND datname = current_database()
                """)
            #expect(judge.answers(policy, [["1"], ["2"]], claimants) == [[true], [false]])
        }
        let suicidal = try stage.judged("pg_terminate_backend(pg_backend_pid())")
        #expect(judge.answers(suicidal, [["1"]], claimants) == [[nil]])
        #expect(eventually { judge.answers(policy, [["1"]], claimants) == [[true]] })
    }

    @Test func `rows wait for a database that is away for a moment, and nothing else does`() throws {
        let cluster = try TestCluster.fresh()
        defer { cluster.stop() }
        let stage = try JudgingStage(on: cluster)
        let judge = try stage.judge()
        let policy = try stage.judged("id = 1")
        let claimants = [stage.claimant("{}")]
        #expect(judge.answers(policy, [["1"]], claimants) == [[true]])
        cluster.stop()
        let term = AskedTerm(sql: "1", type: TypeFacts(oid: 23, name: "integer"), isBuiltIn: true)
        let answers = Awaited<[PolicyAnswers]>()
        judge.ask([PolicyQuestion(policy, rows: [["1"]], claimants: claimants)], seeing: nil) { answers.set($0) }
        #expect(judge.value([term], claimants[0]) == nil)
        try cluster.start()
        #expect(answers.wait()?.first?[0, 0] == true)
    }

    @Test func `what waits when it ends is answered`() throws {
        let stage = try JudgingStage()
        let judge = try PolicyEvaluator(
            PolicyEvaluator.Settings(
                database: stage.logins.hub, policies: stage.logins.policies, clientRoles: [stage.role]))
        let found = (0..<10).map { _ in Awaited<[PolicyAnswers]>() }
        for result in found {
            let hanging = try stage.judged("pg_sleep(60) IS NULL")
            judge.ask([PolicyQuestion(hanging, rows: [["1"]], claimants: [stage.claimant("{}")])], seeing: nil) {
                result.set($0)
            }
        }
        judge.stop()
        for result in found { #expect(result.wait()?.first?[0, 0] == .some(nil)) }
        #expect(judge.answers(try stage.judged("true"), [["1"]], [stage.claimant("{}")]) == [[nil]])
    }

    @Test func `questions of many at once all get their own answers`() throws {
        let stage = try JudgingStage()
        let judge = try stage.judge()
        let policy = try stage.judged("id % 7 = length(current_setting('request.jwt.claims'))")
        let claimants = (0..<7).map { stage.claimant(String(repeating: "x", count: $0)) }
        let results = (0..<500).map { _ in Awaited<[PolicyAnswers]>() }
        for number in 0..<500 {
            let group = number % 3 == 0 ? claimants : Array(claimants.prefix(1 + number % 7))
            let questions = [
                PolicyQuestion(policy, rows: [["\(number)"], ["\(number + 1)"]], claimants: group),
                PolicyQuestion(policy, rows: [["3"], [nil]], claimants: group.reversed()),
            ]
            judge.ask(questions, seeing: nil) { results[number].set($0) }
        }
        for number in 0..<500 {
            let count = number % 3 == 0 ? 7 : 1 + number % 7
            let answers = try #require(results[number].wait())
            for holder in 0..<count {
                #expect(answers[0][0, holder] == (number % 7 == holder))
                #expect(answers[0][1, holder] == ((number + 1) % 7 == holder))
                #expect(answers[1][0, holder] == (count - 1 - holder == 3))
                #expect(answers[1][1, holder] == false)
            }
        }
    }

    @Test func `texts that end early are no answers`() throws {
        let stage = try JudgingStage()
        let judge = try stage.judge()
        let policy = try stage.judged("true", [("body", "text")])
        let claimants = [stage.claimant("{}\0"), stage.claimant("{}")]
        #expect(judge.answers(policy, [["a\0b"], ["ab"]], claimants) == [[nil, nil], [nil, true]])
    }
}
