import Embedded
import Glibc
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

    private func compare(_ stage: JudgingStage, _ subjects: [PolicySubject]) throws {
        let judge = try stage.judge()
        let answers = judge.answers(try stage.policy(of: "notes"), try stage.rows(of: "notes"), subjects)
        var allowed = 0
        for (index, subject) in subjects.enumerated() {
            let shown = try stage.shown("notes", to: subject)
            #expect(answers.map { $0[index] } == shown, "\(subject.claims)")
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
        try compare(stage, (0..<25).map { stage.subject(sub: $0) })
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
        try compare(stage, [stage.subject("{}")])
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
        try compare(stage, poisoned.flatMap { [stage.subject($0), stage.subject(sub: 1)] })
    }

    @Test func `a row that fails denies itself alone`() throws {
        let stage = try JudgingStage(
            Self.members + "CREATE POLICY p ON notes FOR SELECT USING (100 / (id - 7) > 0 AND owner = auth.uid())")
        let judge = try stage.judge()
        let subjects = [stage.subject(sub: 1), stage.subject("broken"), stage.subject(sub: 2)]
        let answers = judge.answers(try stage.policy(of: "notes"), try stage.rows(of: "notes"), subjects)
        for (row, answer) in answers.enumerated() where row != 6 {
            let id = row + 1
            #expect(answer[0] == (id > 7 && id % 5 == 1))
            #expect(answer[2] == (id > 7 && id % 5 == 2))
        }
        #expect(answers[6].allSatisfy { $0 != true })
        #expect(answers.allSatisfy { $0[1] != true })
    }

    /// Checks rows that PostgreSQL can no longer read from their texts, because a type has changed. The hub must
    /// distinguish them from rows on which the policy fails.
    @Test(
        arguments: [true, false],
        [
            "ALTER TYPE label RENAME VALUE 'a' TO 'z'",
            "ALTER DOMAIN short ADD CONSTRAINT shorter CHECK (VALUE <> 'long') NOT VALID",
        ])
    func `rows that cannot be made any more are not denied`(withFunctions: Bool, change: String) throws {
        let stage = try JudgingStage(
            """
            CREATE TYPE label AS ENUM ('a', 'b');
            CREATE DOMAIN short AS text;
            CREATE TABLE notes (kind label, body short, owner uuid);
            ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
            CREATE POLICY p ON notes FOR SELECT USING (owner = auth.uid());
            """)
        if !withFunctions { try stage.run("REVOKE TEMP ON DATABASE \(stage.database.name) FROM PUBLIC") }
        let judge = try stage.judge()
        let policy = JudgedPolicy(
            role: stage.role,
            row: JudgedRow(
                relation: "notes", schema: "public",
                columns: [("kind", "public.label"), ("body", "public.short"), ("owner", "uuid")].enumerated().map {
                    JudgedRow.Column(slot: $0, name: $1.0, type: $1.1)
                }), table: 1, sql: "owner = auth.uid()", version: 1)
        let owner = SampleUUID.text(1)
        let rows: [[String?]] = [["a", "long", owner], ["a", "long", nil]]
        func given(_ rows: [[String?]], _ claims: PolicySubject) throws -> [(Bool?, failed: Bool)] {
            let found = Awaited<[PolicyAnswers]>()
            judge.ask([PolicyQuestion(policy, rows: rows, subjects: [claims])], seeing: nil) { found.set($0) }
            let answers = try #require(found.wait()?.first)
            return rows.indices.map { (answers[$0, 0], answers.hasFailed($0, 0)) }
        }
        let before = try given(rows, stage.subject(sub: 1))
        #expect(before.map(\.0) == [true, false] && !before.contains(where: \.failed))
        #expect(try given(rows, stage.subject("broken")).allSatisfy { $0.0 == nil && $0.failed })
        try stage.run(change)
        for rows in [rows, [rows[0]]] {
            let after = try given(rows, stage.subject(sub: 1))
            #expect(after.allSatisfy { $0.0 == nil && !$0.failed })
        }
    }

    /// Changes of definitions, each with a statement that undoes it. After both, everything has its former name and
    /// type.
    static let shifts = [
        ("ALTER TABLE notes ADD COLUMN more text", "ALTER TABLE notes DROP COLUMN more"),
        ("ALTER TABLE notes DROP COLUMN spare", "ALTER TABLE notes ADD COLUMN spare int"),
        (
            "ALTER TABLE notes DROP COLUMN spare, ADD COLUMN spare text",
            "ALTER TABLE notes ALTER spare TYPE int USING 1"
        ),
        ("ALTER TABLE notes ALTER spare TYPE bigint", "ALTER TABLE notes ALTER spare TYPE int"),
        ("ALTER TABLE notes RENAME COLUMN kind TO sort", "ALTER TABLE notes RENAME COLUMN sort TO kind"),
        (
            "ALTER TABLE notes RENAME COLUMN kind TO sort; ALTER TABLE notes RENAME COLUMN owner TO kind",
            "ALTER TABLE notes RENAME COLUMN kind TO owner; ALTER TABLE notes RENAME COLUMN sort TO kind"
        ),
        ("ALTER TABLE notes RENAME TO others", "ALTER TABLE others RENAME TO notes"),
        ("ALTER TYPE label RENAME VALUE 'a' TO 'z'", "ALTER TYPE label RENAME VALUE 'z' TO 'a'"),
        ("ALTER TYPE label RENAME TO labels", "ALTER TYPE labels RENAME TO label"),
        ("ALTER FUNCTION may_see RENAME TO might_see", "ALTER FUNCTION might_see RENAME TO may_see"),
        ("DROP FUNCTION may_see", seeing),
        ("DROP TABLE notes", table),
        ("DROP TABLE notes; DROP FUNCTION may_see; DROP TYPE label", kinds + table + seeing),
    ]
    private static let kinds = "CREATE TYPE label AS ENUM ('a', 'b');"
    private static let table = "CREATE TABLE notes (id int, owner uuid, kind label, spare int);"
    private static let seeing = """
        CREATE FUNCTION may_see(owner uuid, kind label) RETURNS boolean LANGUAGE plpgsql STABLE
        AS $$ BEGIN RETURN owner = auth.uid() OR kind = 'b'; END $$
        """

    /// Returns the answers about two rows, which are given by their columns' names, with the table's current
    /// definition.
    private func answers(_ judge: PolicyEvaluator, _ stage: borrowing JudgingStage, _ sql: String) throws -> [[Bool?]] {
        let known = try stage.row(of: "notes")
        let rows = ["a", "b"].enumerated().map { index, kind in
            known.columns.map { ["owner": SampleUUID.text(1), "kind": kind, "id": String(index)][$0.name] ?? "9" }
        }
        let policy = JudgedPolicy(role: stage.role, row: known, table: 1, sql: sql, version: 1)
        return judge.answers(policy, rows, [stage.subject(sub: 2)])
    }

    /// Checks a session that PostgreSQL keeps from before a change. It must give the right answers after the change is
    /// undone.
    @Test(arguments: [true, false])
    func `definitions that came and went leave rows as visible as before`(withFunctions: Bool) throws {
        let stage = try JudgingStage(Self.kinds + Self.table + Self.seeing)
        if !withFunctions { try stage.run("REVOKE TEMP ON DATABASE \(stage.database.name) FROM PUBLIC") }
        let judge = try stage.judge()
        func check(_ what: String) throws {
            // After some executions, PostgreSQL makes one plan for all values.
            for _ in 0..<8 {
                let answers = try answers(judge, stage, "public.may_see(owner, kind)")
                #expect(answers == [[false], [true]], "\(what)")
            }
        }
        try check("before")
        for (change, undo) in Self.shifts {
            for isAskedBetween in [true, false] {
                try stage.run(change)
                if isAskedBetween { _ = try? answers(judge, stage, "public.may_see(owner, kind)") }
                try stage.run(undo)
                stage.definitionsHaveChanged()
                try check("\(change), \(isAskedBetween)")
            }
        }
    }

    /// Checks a policy's function that fails in an old session because of an unreported change: the hub must replace
    /// the session.
    @Test func `a failure in an old session is no answer`() throws {
        let stage = try JudgingStage(
            Self.kinds + Self.table + """
                CREATE TABLE others (n int);
                INSERT INTO others VALUES (7);
                GRANT SELECT ON others TO READER;
                CREATE FUNCTION may_see(owner uuid, kind label) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
                    DECLARE other record;
                    BEGIN SELECT * INTO other FROM others; RETURN other.n = 7; END $$
                """)
        let judge = try stage.judge()
        func check() throws {
            let answers = try answers(judge, stage, "public.may_see(owner, kind)")
            #expect(answers == [[true], [true]])
        }
        try check()
        try stage.run("ALTER TABLE others ALTER n TYPE bigint")
        usleep(1_100_000)
        for _ in 0..<3 { try check() }
    }

    /// Changes after which the same text of a policy has another meaning.
    static let exchanges = [
        "ALTER TYPE label RENAME VALUE 'a' TO 'z'; ALTER TYPE label RENAME VALUE 'b' TO 'a'; ALTER TYPE label RENAME VALUE 'z' TO 'b'",
        "ALTER TABLE notes RENAME id TO more; ALTER TABLE notes RENAME spare TO id; ALTER TABLE notes RENAME more TO spare",
        "ALTER TABLE notes DROP id, ADD id int",
        "DROP TABLE notes; CREATE TABLE notes (kind label, spare int, id int, owner uuid)",
        "DROP TABLE notes; DROP FUNCTION may_see; DROP TYPE label; CREATE TYPE label AS ENUM ('b', 'a');" + table
            + seeing,
    ]

    /// Checks a session from before a change: as soon as the hub knows the change, the session must answer like a new
    /// one.
    @Test(
        arguments: [true, false], ["id = 1", "kind = 'b'", "public.may_see(owner, kind)", "notes.kind > 'a' OR id > 1"])
    func `a text that has another meaning is judged by it`(withFunctions: Bool, sql: String) throws {
        let stage = try JudgingStage(Self.kinds + Self.table + Self.seeing)
        if !withFunctions { try stage.run("REVOKE TEMP ON DATABASE \(stage.database.name) FROM PUBLIC") }
        let judge = try stage.judge()
        for change in ["SELECT 1"] + Self.exchanges {
            try stage.run(change)
            stage.definitionsHaveChanged()
            let fresh = try answers(stage.judge(), stage, sql)
            #expect(fresh.contains([true]) || fresh.contains([false]))
            for _ in 0..<8 { #expect(try answers(judge, stage, sql) == fresh, "\(change)") }
        }
    }

    @Test func `a term that fails for a moment is not known, and does not count as failed`() throws {
        let stage = try JudgingStage()
        func term(_ state: String) throws -> AskedTerm {
            let name = "public.fails_\(state)"
            try stage.run(
                """
                CREATE FUNCTION \(name)() RETURNS int LANGUAGE plpgsql AS $$
                BEGIN RAISE EXCEPTION USING ERRCODE = '\(state)'; END $$
                """)
            return AskedTerm(sql: "\(name)()", type: TypeFacts(oid: 23, name: "integer"), isBuiltIn: false)
        }
        let judge = try stage.judge()
        let one = AskedTerm(sql: "1", type: TypeFacts(oid: 23, name: "integer"), isBuiltIn: true)
        let (passing, lasting, inner) = (try term("53200"), try term("P0001"), try term("XX000"))
        #expect(judge.value([one, passing], stage.subject("{}")) == nil)
        #expect(judge.value([inner, one], stage.subject("{}")) == nil)
        #expect(judge.value([lasting, one, passing], stage.subject("{}")) == nil)
        #expect(judge.value([one, lasting], stage.subject("{}")) == [one: .value([49]), lasting: .failed])
    }

    @Test func `many rows do not make claims that fail any better`() throws {
        let stage = try JudgingStage()
        let judge = try stage.judge()
        let policy = try stage.judged("id > 20 OR 1 / (20 - id) > 0 OR auth.uid() IS NULL")
        let rows = (1...40).map { ["\($0)"] as [String?] }
        let answers = judge.answers(policy, rows, [stage.subject(sub: 1), stage.subject("broken")])
        #expect(answers.map { $0[0] } == (1...40).map { $0 == 20 ? nil : $0 == 19 || $0 > 20 })
        // The result does not depend on which arm PostgreSQL evaluates first.
        #expect(answers.allSatisfy { $0[1] != false })
        let always = try stage.judged("auth.uid() IS NOT NULL AND id > 0")
        #expect(judge.answers(always, rows, [stage.subject("broken")]) == rows.map { _ in [nil] })
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
        try compare(stage, ["one", "two", "three", "four"].map { stage.subject($0) })
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
            #expect(judge.answers(try stage.judged(policy), [["1"]], [stage.subject("{}")]) != [[true]], "\(policy)")
        }
        #expect(judge.answers(try stage.judged("true"), [["1"]], [stage.subject("{}")]) == [[true]])
        #expect(judge.answers(try stage.judged("true", []), [[], []], [stage.subject("{}")]) == [[true], [true]])
    }

    @Test func `what a policy's function sets for one subject is gone for the next`() throws {
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
        let subjects = ["a", "b", "c"].map { stage.subject($0) }
        for _ in 0..<2 {
            #expect(
                judge.answers(policy, [["a"], ["b"], ["c"]], subjects) == [
                    [true, false, false], [false, true, false], [false, false, true],
                ])
        }
        let left = try stage.judged("coalesce(current_setting('app.lasting', true), '') <> ''")
        #expect(judge.answers(left, [["1"]], subjects) == [[false, false, false]])
    }

    @Test func `a policy that hangs holds up no other, and is left alone for a while`() throws {
        let stage = try JudgingStage()
        let judge = try stage.judge()
        let hanging = try stage.judged("pg_sleep(60) IS NOT NULL")
        let found = Awaited<[PolicyAnswers]>()
        judge.ask([PolicyQuestion(hanging, rows: [["1"]], subjects: [stage.subject("{}")])], seeing: nil) {
            found.set($0)
        }
        for number in 0..<20 {
            let policy = try stage.judged("id > \(number)")
            #expect(judge.answers(policy, [["10"]], [stage.subject("{}")]) == [[number < 10]])
        }
        #expect(found.wait()?.first?[0, 0] == .some(nil))
        #expect(judge.answers(hanging, [["1"]], [stage.subject("{}")]) == [[nil]])
    }

    @Test func `a slow policy is asked in smaller parts`() throws {
        let stage = try JudgingStage()
        let judge = try stage.judge()
        let slow = try stage.judged("pg_sleep(0.01) IS NOT NULL")
        let subjects = (0..<200).map { stage.subject(sub: $0) }
        #expect(judge.answers(slow, [["1"]], subjects) == [Array(repeating: true, count: 200)])
    }

    @Test func `a lost connection is made again`() throws {
        let stage = try JudgingStage()
        let judge = try stage.judge()
        let policy = try stage.judged("id = 1")
        let subjects = [stage.subject("{}")]
        #expect(judge.answers(policy, [["1"], ["2"]], subjects) == [[true], [false]])
        for _ in 0..<3 {
            try stage.run(
                """
                SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity
                WHERE application_name = 'tidewire policies' AND datname = current_database()
                """)
            #expect(judge.answers(policy, [["1"], ["2"]], subjects) == [[true], [false]])
        }
        let suicidal = try stage.judged("pg_terminate_backend(pg_backend_pid())")
        #expect(judge.answers(suicidal, [["1"]], subjects) == [[nil]])
        #expect(eventually { judge.answers(policy, [["1"]], subjects) == [[true]] })
    }

    @Test func `rows wait for a database that is away for a moment, and nothing else does`() throws {
        let cluster = try TestCluster.fresh()
        defer { cluster.stop() }
        let stage = try JudgingStage(on: cluster)
        let judge = try stage.judge()
        let policy = try stage.judged("id = 1")
        let subjects = [stage.subject("{}")]
        #expect(judge.answers(policy, [["1"]], subjects) == [[true]])
        cluster.stop()
        let term = AskedTerm(sql: "1", type: TypeFacts(oid: 23, name: "integer"), isBuiltIn: true)
        let answers = Awaited<[PolicyAnswers]>()
        judge.ask([PolicyQuestion(policy, rows: [["1"]], subjects: subjects)], seeing: nil) { answers.set($0) }
        #expect(judge.value([term], subjects[0]) == nil)
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
            judge.ask([PolicyQuestion(hanging, rows: [["1"]], subjects: [stage.subject("{}")])], seeing: nil) {
                result.set($0)
            }
        }
        judge.stop()
        for result in found { #expect(result.wait()?.first?[0, 0] == .some(nil)) }
        #expect(judge.answers(try stage.judged("true"), [["1"]], [stage.subject("{}")]) == [[nil]])
    }

    @Test func `questions of many at once all get their own answers`() throws {
        let stage = try JudgingStage()
        let judge = try stage.judge()
        let policy = try stage.judged("id % 7 = length(current_setting('request.jwt.claims'))")
        let subjects = (0..<7).map { stage.subject(String(repeating: "x", count: $0)) }
        let results = (0..<500).map { _ in Awaited<[PolicyAnswers]>() }
        for number in 0..<500 {
            let group = number % 3 == 0 ? subjects : Array(subjects.prefix(1 + number % 7))
            let questions = [
                PolicyQuestion(policy, rows: [["\(number)"], ["\(number + 1)"]], subjects: group),
                PolicyQuestion(policy, rows: [["3"], [nil]], subjects: group.reversed()),
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
        let subjects = [stage.subject("{}\0"), stage.subject("{}")]
        #expect(judge.answers(policy, [["a\0b"], ["ab"]], subjects) == [[nil, nil], [nil, true]])
    }
}
