import Policy
import Postgres
import TestSupport
import Testing

/// Tests that a compiled policy shows exactly the rows that PostgreSQL shows with the same policy.
@Suite(.serialized, .inChain(minutes: 10)) struct RowVerdictTests {
    @Test(arguments: seeds(1)) func `no compiled policy shows what PostgreSQL hides, or hides what it shows`(
        seed: Seed
    ) throws {
        var oracle = try RowVerdictOracle(seed: seed)
        for sample in RealisticPolicies.all {
            try oracle.examine(sample.sql)
            try oracle.examine("NOT (\(sample.sql))")
            try oracle.examine("(\(sample.sql)) IS NULL OR kind = 'x'")
            try oracle.examine("CASE WHEN \(sample.sql) THEN is_active ELSE user_id = auth.uid() END")
        }
        for sql in RowVerdictOracle.more { try oracle.examine(sql) }
        for _ in 0..<80 { try oracle.examineTree() }
        print("seed \(seed): \(oracle.judged) judged, \(oracle.shown) shown, \(oracle.asked) asked of PostgreSQL")
        #expect(oracle.wrong.count == 0, "\(oracle.wrong.prefix(5).joined(separator: "\n"))")
        #expect(oracle.shown > 1000)
        #expect(oracle.asked * 3 < oracle.judged)
    }
}

struct RowVerdictOracle {
    private let evaluatesLate = ((try? TestServer.major()) ?? 0) >= 18

    /// Unusual policies: values or arguments that are NULL, or claims in unusual places.
    static let more = [
        "public.has_role(team_id, NULL)", "NOT public.has_role(NULL, 'owner')", "public.has_role(team_id, kind)",
        "team_id NOT IN (SELECT m.team_id FROM team_members m WHERE m.role = 'owner')",
        "NOT (auth.uid() IN (SELECT m.user_id FROM team_members m))",
        "user_id = ANY (ARRAY(SELECT m.user_id FROM team_members m WHERE m.team_id = auth.uid()))",
        "COALESCE(team_id, auth.uid()) IN (SELECT public.get_my_teams())",
        "(team_id IN (SELECT public.get_my_teams())) = is_public",
        "NULLIF(kind, 'x') IS NULL", "current_setting('request.jwt.claims', NULL) IS NULL",
        "NULLIF(kind, auth.role()) = 'team'", "kind IS DISTINCT FROM auth.role()",
        "(auth.jwt() ->> 'org')::int > qty", "auth.uid() <> ALL (collaborators)",
        "NOT (auth.uid() = ANY (collaborators))",
        "org_id = ANY (ARRAY[auth.role(), name])", "is_active IS UNKNOWN AND NOT is_public",
        "CASE kind WHEN 'team' THEN is_public WHEN 'x' THEN is_active END",
        "GREATEST(auth.role(), 'b') = kind", "(kind || 'x')::text = 'teamx'", "qty + small = 3", "1 / qty = 1",
        "tags @> ARRAY[kind]", "tags = '{a,NULL}'", "tags && ARRAY['a', auth.role()]", "kind = ANY (tags)",
        "status > 'draft'", "status::text = 'draft'", "status = (auth.jwt() ->> 'status')::public.post_status",
        "is_public = (auth.jwt() ->> 'is_anonymous')::boolean", "(is_public = false) OR is_active IS NOT TRUE",
        "public.claim('role') = ANY (tags)", "auth.role() = current_user", "vis = auth.role()",
        "EXISTS (SELECT 1 FROM user_roles r WHERE r.role = t.kind)",
        "EXISTS (SELECT 1 FROM user_roles r WHERE t.vis = r.role AND r.user_id IS NOT NULL)",
        "EXISTS (SELECT 1 FROM user_roles r WHERE r.role = lower(t.kind) AND r.user_id = auth.uid())",
        "ci = 'abc'::extensions.citext OR email = auth.email()", "left(kind, 1) = 't'", "code::text = 'AB'",
        "meta -> 'owner' = to_jsonb(auth.uid())", "price = (auth.jwt() ->> 'org')::numeric",
        "published_at > '2020-01-01' AND created_at > '2020-01-01 00:00:00+02'", "length(name) > 3",
    ]

    private(set) var judged = 0
    private(set) var shown = 0
    private(set) var asked = 0
    private(set) var wrong: [String] = []
    /// Policies that the compiler left to PostgreSQL as a whole.
    private(set) var left: [String] = []
    private var stage: CatalogStage
    /// Second session, in which names are found only if they are qualified.
    private let asker: Connection
    private let rows: [[String?]]
    private let claims: [String]
    private var random: SeededRandom

    init(seed: Seed) throws {
        let database = try TestDatabase()
        try database.run(RealisticPolicies.schema + Self.privileges + (seed.number % 2 == 1 ? Self.domains : ""))
        var random = SeededRandom(seed: seed)
        for id in 1...24 { try database.run(Self.row(id, &random)) }
        for _ in 0..<16 {
            try database.run(
                """
                INSERT INTO team_members VALUES (\(Self.uuid(&random)), \(Self.uuid(&random)), \(Self.role(&random)), now());
                INSERT INTO user_roles VALUES (\(Self.uuid(&random)), \(Self.role(&random)));
                """)
        }
        self.random = random
        rows = try database.rows("SELECT * FROM t ORDER BY id")
        stage = try CatalogStage(database)
        try stage.learn(relation: QualifiedName("public", "t"))
        asker = try Connection(database.target)
        try asker.execute("SET search_path = ''; SET TimeZone = 'UTC'")
        try database.run("SET TimeZone = 'UTC'")
        claims = try Self.claims.map {
            $0 == "" ? "" : try database.rows("SELECT $1::jsonb::text", [$0])[0][0] ?? ""
        }
    }

    /// SQL that changes columns used by policies to domains over their types.
    private static let domains = """
        CREATE DOMAIN public.amount AS numeric(10,2) CHECK (VALUE <> -1); CREATE DOMAIN public.person AS uuid;
        CREATE DOMAIN public.quantity AS integer;
        ALTER TABLE public.t ALTER price TYPE public.amount, ALTER recipient_id TYPE public.person,
            ALTER qty TYPE public.quantity;
        """

    private static let privileges = """
        GRANT USAGE ON SCHEMA auth, extensions, public TO authenticated;
        GRANT SELECT ON ALL TABLES IN SCHEMA public TO authenticated;
        CREATE FUNCTION public.verdict(policy text, which bigint) RETURNS text LANGUAGE plpgsql AS $$
        DECLARE answer boolean;
        BEGIN
            EXECUTE 'SELECT (' || policy || ') FROM public.t WHERE id = $1' INTO answer USING which;
            RETURN answer;
        EXCEPTION WHEN others THEN RETURN 'failed';
        END $$;
        """

    // MARK: Rows and claims

    private static func uuid(_ random: inout SeededRandom) -> String {
        random.pick(["NULL", "'\(uuids[0])'", "'\(uuids[1])'", "'\(uuids[2])'"])
    }

    private static let uuids = (1...3).map { "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1\($0)" }

    private static func role(_ random: inout SeededRandom) -> String {
        random.pick(["NULL", "'owner'", "'admin'", "'banned'", "'team'"])
    }

    private static func row(_ id: Int, _ random: inout SeededRandom) -> String {
        let bool = { (random: inout SeededRandom) in random.pick(["NULL", "true", "false"]) }
        let word = { (random: inout SeededRandom) in
            random.pick(["NULL", "'public'", "'team'", "'x'", "'authenticated'", "'a@b.c'", "'É'", "''"])
        }
        var values = [String(id)]
        for _ in 0..<5 { values.append(uuid(&random)) }
        values.append(random.pick(["NULL", "'1'", "'acme'", "'\(uuids[0])'"]))
        values += [bool(&random), bool(&random)]
        values.append(random.pick(["NULL", "'a@b.c'", "'A@B.C'", "'ä@b.c'"]))
        values.append(random.pick(["NULL", "'abc'", "'ABC'", "'a@b.c'"]))
        values.append(random.pick(["NULL", "now()"]))
        values.append(word(&random))
        values.append(random.pick(["NULL", "'draft'", "'review'", "'published'"]))
        values.append(random.pick(["NULL", "'a'", "'B''s'"]))
        values.append(random.pick(["NULL", "'{}'", "'{\(uuids[0]),NULL}'", "'{\(uuids[1])}'"]))
        values.append(random.pick(["NULL", "'{}'", "'{a,NULL}'", "'{public,team,x}'", "'{authenticated}'"]))
        values.append(random.pick(["NULL", "'2020-01-01'", "'2999-01-01'"]))
        values.append(random.pick(["NULL", "now()", "now() - interval '8 days'"]))
        values.append(word(&random))
        values.append(random.pick(["NULL", "'public-1'", "'it is Shared'", "'\(uuids[0])/x'", "'Ünshared'"]))
        values.append(random.pick(["NULL", "'{\"owner\": \"\(uuids[0])\"}'", "'{\"owner\": 5}'", "'[]'"]))
        values.append(random.pick(["NULL", "1", "1.50", "'NaN'"]))
        values.append(random.pick(["NULL", "0", "1", "7"]))
        values.append(random.pick(["NULL", "3", "2"]))
        values.append(random.pick(["NULL", "1", "'-0'", "'NaN'"]))
        values.append(random.pick(["NULL", "'AB'", "'ABC'"]))
        values.append(random.pick(["NULL", "'x'", "'y'"]))
        values.append(word(&random))
        values.append("NULL")
        values.append(random.pick(["NULL", "'top.sub.a'", "'b'"]))
        values.append(random.pick(["NULL", "'it''s \\ \"quoted\"'", "'x'"]))
        return "INSERT INTO t VALUES (\(values.joined(separator: ", ")))"
    }

    private static let claims = [
        #"{"sub": "\#(uuids[0])", "role": "authenticated", "email": "a@b.c", "aal": "aal2", "org": 7, "is_anonymous": false,"#
            + #" "tags": ["a", "x"], "status": "draft", "app_metadata": {"role": "admin", "tenant_id": "\#(uuids[1])","#
            + #" "tenants": ["\#(uuids[0])", "\#(uuids[2])"], "teams": ["\#(uuids[1])"]}}"#,
        #"{"sub": "{A0EEBC99-9C0B-4EF8-BB6D6BB9BD380A12}", "role": "team", "org": "1", "is_anonymous": "yes","#
            + #" "tags": "a", "status": "odd", "app_metadata": {"tenants": {}, "tenant_id": "x"}}"#,
        #"{"sub": null, "role": "É", "email": "Ä@b.c", "org": "1.50", "is_anonymous": "x"}"#,
        #"{"sub": "no uuid", "role": "authenticated", "app_metadata": null}"#, #"{}"#, "", #"{"sub": ""}"#, "[1]",
    ]

    // MARK: Examining

    /// Checks a random combination of conditions.
    mutating func examineTree() throws { try examine(tree(depth: 3)) }

    private mutating func tree(depth: Int) -> String {
        guard depth > 0, Int.random(in: 0..<4, using: &random) > 0 else {
            return "(\(random.pick(RealisticPolicies.all.map(\.sql) + Self.more)))"
        }
        let (a, b) = (tree(depth: depth - 1), tree(depth: depth - 1))
        return switch Int.random(in: 0..<10, using: &random) {
        case 0, 1: "(\(a) AND \(b))"
        case 2, 3: "(\(a) OR \(b))"
        case 4: "(NOT \(a))"
        case 5: "(\(a) IS \(random.pick(["TRUE", "NOT TRUE", "FALSE", "NOT FALSE", "UNKNOWN", "NOT UNKNOWN"])))"
        case 6: "CASE WHEN \(a) THEN \(b) END"
        case 7: "CASE WHEN \(a) THEN is_active ELSE \(b) END"
        case 8: "COALESCE(\(a), \(random.pick(["true", "false", b])))"
        default: "(SELECT \(a))"
        }
    }

    mutating func examine(_ sql: String) throws {
        let text = try stage.deparsed(sql, on: "public.t")
        try stage.learn(text)
        let table = try #require(stage.catalog.relations[QualifiedName("public", "t")])
        let policy = PolicyCompiler(stage.catalog).compile(text, on: table)
        guard policy.term != .undecided else {
            left.append(text)
            return
        }
        for claim in claims { try examine(policy, text, claim) }
    }

    private mutating func examine(_ policy: CompiledPolicy, _ text: String, _ claim: String) throws {
        try enter(stage.database.connection, claim)
        defer { _ = try? stage.database.run("ROLLBACK") }
        let answers = try stage.database.rows("SELECT public.verdict($1, id) FROM t ORDER BY id", [text]).map { $0[0] }
        let predicate = try predicate(policy, claim)
        for (row, answer) in zip(rows, answers) {
            let verdict = predicate.verdict(row.map { $0.map { .text($0) } ?? .null })
            judged += 1
            if verdict == .ask { asked += 1 }
            if answer == "true" { shown += 1 }
            guard verdict != .ask, (verdict == .yes) != (answer == "true") else { continue }
            // PostgreSQL chooses the arm of an OR that it evaluates first, and so the one that fails.
            if answer == "failed", verdict == .yes { continue }
            // A malformed claim shows no rows. From PostgreSQL 18 on, an SQL function evaluates the claim only if a row
            // needs it.
            let isMalformed = claim.contains("no uuid") || claim.contains(#""sub": """#)
            if evaluatesLate, isMalformed, verdict != .yes { continue }
            wrong.append("\(verdict), not \(answer ?? "NULL"): \(text) of \(row.map { $0 ?? "NULL" }) for \(claim)")
        }
    }

    private func enter(_ connection: Connection, _ claim: String, as role: String = "authenticated") throws {
        try connection.execute("BEGIN; SET LOCAL ROLE \(role)")
        try connection.query("SELECT pg_catalog.set_config('request.jwt.claims', $1, true)", [claim])
    }

    private func predicate(_ policy: CompiledPolicy, _ claim: String) throws -> Predicate {
        var answers: [AskedTerm: AskedAnswer] = [:]
        while true {
            switch RowPolicy(policy.term).residual(
                claims: Array(claim.utf8), role: Array("authenticated".utf8), answers: answers)
            {
            case .needs(let terms):
                for term in terms { answers[term] = try answer(term, claim) }
            case .residual(let residual):
                var keys: [MembershipKeys] = []
                for held in residual.memberships { keys.append(try fill(held.membership, claim)) }
                return residual.predicate(keys: keys, asker: 1, settings: .forTests)
            }
        }
    }

    private func answer(_ term: AskedTerm, _ claim: String) throws -> AskedAnswer {
        try enter(asker, claim)
        defer { _ = try? asker.execute("ROLLBACK") }
        do {
            return .value(try asker.query("SELECT \(term.sql)").values[0][0].map { Array($0.utf8) })
        } catch {
            // The term causes a data exception. Any other error would be a fault of the hub.
            #expect(error.sqlState?.hasPrefix("22") == true, "\(error) of \(term.sql)")
            return .failed
        }
    }

    private func fill(_ membership: Membership, _ claim: String) throws -> MembershipKeys {
        try enter(asker, claim, as: membership.reader == .caller ? "authenticated" : "NONE")
        defer { _ = try? asker.execute("ROLLBACK") }
        do {
            let texts = try asker.query(membership.fillSQL).values.map { $0[0].map { Array($0.utf8) } }
            let keys = Set(texts.compactMap { $0 }).sorted { $0.lexicographicallyPrecedes($1) }
            return MembershipKeys(
                keys: keys, hasNull: texts.contains(nil), hasRows: !texts.isEmpty, hasFailed: false)
        } catch {
            #expect(error.sqlState?.hasPrefix("22") == true, "\(error) of \(membership.fillSQL)")
            return MembershipKeys(keys: [], hasNull: false, hasRows: false, hasFailed: true)
        }
    }
}
