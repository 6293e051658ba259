import TestSupport

/// Generator of a random history, transaction by transaction, of a table, its policies and everything that they refer
/// to.
struct PolicyHistory {
    struct Step {
        var sql: String
        /// True if the stream does not report the step, so that the hub finds it by polling, which takes a while.
        var isQuiet = false
    }

    private var random: SeededRandom
    /// True if the stream reports definitions, except for those of roles.
    private let isToldOfDefinitions: Bool
    private var labels = 0
    private var hasExtraColumn = false
    /// Current policies, for the analysis of a failure.
    private(set) var policies: [String] = []

    /// True if changes contain old rows; otherwise the hub finds the missing parts in the log.
    let keepsThePast: Bool
    private var levelType = 0

    init(seed: Seed, isToldOfDefinitions: Bool) {
        random = SeededRandom(seed: seed)
        self.isToldOfDefinitions = isToldOfDefinitions
        ground = HistoryGround.allCases[Int((seed.number - 1) % UInt64(HistoryGround.allCases.count))]
        let (round, turn) = (seed.number - 1).quotientAndRemainder(dividingBy: 6)
        encoding = [.utf8, .koi8r, .utf8, .sqlASCII, .utf8, .latin1][Int((round + turn) % 6)]
        settings = Self.settings[Int((seed.number - 1) % UInt64(Self.settings.count))]
        keepsThePast = ground.canKeepThePast && Int.random(in: 0..<3, using: &random) > 0
        hasDomains = Bool.random(using: &random)
    }

    let ground: HistoryGround
    private let hasDomains: Bool
    let encoding: ServerEncoding
    /// Settings of the database.
    private let settings: [(name: String, value: String)]

    private static let settings: [[(name: String, value: String)]] = [
        [("datestyle", "ISO, DMY")], [],
        [("datestyle", "German"), ("extra_float_digits", "0"), ("bytea_output", "escape")],
        [("intervalstyle", "sql_standard"), ("datestyle", "SQL, DMY")],
    ]

    /// Returns the text with letters replaced by ones that the database's encoding has.
    func spelled(_ text: String) -> String {
        encoding == .latin1 ? text.replacing("Б", with: "é").replacing("Ц", with: "Ä") : text
    }

    /// True if the stream reports definitions for this seed. Successive seeds use different kinds of tables.
    static func isTold(_ seed: Seed) -> Bool {
        let (round, ground) = (seed.number - 1).quotientAndRemainder(dividingBy: UInt64(HistoryGround.allCases.count))
        return (round + ground) % 2 == 1
    }

    /// SQL of the initial schema.
    var schema: String {
        let domains = """
            CREATE DOMAIN word AS text CHECK (VALUE <> 'never'); CREATE DOMAIN person AS uuid;
            CREATE DOMAIN amount AS numeric(8, 2) CHECK (VALUE <> -1); CREATE DOMAIN words AS text[];
            CREATE DOMAIN some_team AS int CHECK (VALUE > 0);
            ALTER TABLE notes ALTER owner TYPE person, ALTER kind TYPE word, ALTER body TYPE word, ALTER score TYPE amount,
                ALTER tags TYPE words, ALTER team TYPE some_team;
            ALTER TABLE members ALTER team TYPE some_team, ALTER role TYPE word;
            """
        let set = settings.map { "ALTER DATABASE %1$I SET \($0.name) = ''\($0.value)'';" }.joined()
        let surroundings =
            set.isEmpty ? "" : "DO $$ BEGIN EXECUTE format('\(set)', current_database()); END $$;"
        return surroundings + "CREATE TYPE rank AS ENUM ('low', 'high');" + ground.creation + Self.tables
            + (hasDomains ? domains : "")
            + "ALTER TABLE notes ADD COLUMN label text GENERATED ALWAYS AS (kind || team::text) STORED;"
            + ground.identity(keepsThePast) + rowSecurity("ENABLE")
    }

    /// Statements that give the session of the expected results the settings of clients' sessions.
    var oracleSettings: String { settings.map { "SET LOCAL \($0.name) = '\($0.value)';" }.joined() }

    static func user(_ number: Int) -> String { "0000abcd-000e-4000-8000-00000000000\(number)" }

    /// SQL of the tables. `trail` records the changes in their order.
    private static let tables = """
        CREATE TABLE members (team int, person uuid, role text, PRIMARY KEY (team, person));
        CREATE TABLE fences (id int PRIMARY KEY);
        CREATE TABLE trail (place bigserial, operation text, was text, became text, old_id int, id int, shown jsonb);
        ALTER TABLE members REPLICA IDENTITY FULL;
        GRANT SELECT ON notes, members, fences TO READER, OUTSIDER;
        ALTER ROLE OUTSIDER NOINHERIT; CREATE ROLE group_READER; GRANT group_READER TO READER, OUTSIDER;
        CREATE POLICY own ON members FOR SELECT TO READER, OUTSIDER USING (person = auth.uid());
        CREATE POLICY hub ON members FOR SELECT TO HUB USING (true); GRANT SELECT ON members TO HUB;
        CREATE FUNCTION note_trail() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE whole text; was text; became text;
        BEGIN
            IF current_setting('oracle.asks', true) = 'yes' THEN RETURN NULL; END IF;
            SELECT format('SELECT ROW(%s)::notes::text', string_agg(format('($1).%I', attname), ', ' ORDER BY attnum))
            INTO whole FROM pg_attribute WHERE attrelid = 'notes'::regclass AND attnum > 0 AND NOT attisdropped;
            IF TG_OP <> 'INSERT' THEN EXECUTE whole INTO was USING OLD; END IF;
            IF TG_OP <> 'DELETE' THEN EXECUTE whole INTO became USING NEW; END IF;
            INSERT INTO trail (operation, was, became, old_id, id, shown) VALUES (TG_OP, was, became,
                CASE WHEN TG_OP <> 'INSERT' THEN OLD.id END, CASE WHEN TG_OP <> 'DELETE' THEN NEW.id END,
                CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) - 'score' - 'data' - 'tags' END);
            RETURN NULL;
        END $$;
        CREATE TRIGGER trail AFTER INSERT OR UPDATE OR DELETE ON notes FOR EACH ROW EXECUTE FUNCTION note_trail();
        CREATE FUNCTION oracle(images text[], roles text[], claims text[], by_leaf boolean) RETURNS text
        LANGUAGE plpgsql AS $$
        DECLARE verdicts text := ''; n bigint; plain text; judged regclass;
        BEGIN
            SELECT string_agg(quote_ident(attname), ', ') INTO plain FROM pg_attribute
            WHERE attrelid = 'notes'::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '';
            PERFORM set_config('oracle.asks', 'yes', true);
            FOR i IN 1..cardinality(images) LOOP
                DELETE FROM notes;
                EXECUTE format('INSERT INTO notes (%1$s) SELECT %1$s FROM (SELECT ($1::notes).*) n', plain) USING images[i];
                SELECT CASE WHEN by_leaf THEN tableoid ELSE 'notes'::regclass END INTO judged FROM notes;
                FOR c IN 1..cardinality(claims) LOOP
                    BEGIN
                        PERFORM set_config('request.jwt.claims', claims[c], true), set_config('role', roles[c], true);
                        EXECUTE 'SELECT count(id) FROM ' || judged INTO n;
                        PERFORM set_config('role', 'none', true);
                        verdicts := verdicts || CASE WHEN n > 0 THEN 'y' ELSE 'n' END;
                    EXCEPTION WHEN OTHERS THEN
                        verdicts := verdicts || CASE WHEN left(SQLSTATE, 2) = '42' THEN 'n' ELSE 'e' END;
                    END;
                END LOOP;
            END LOOP;
            RETURN verdicts;
        END $$;
        CREATE FUNCTION told(notes) RETURNS text LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN $1::text; END $$;
        CREATE FUNCTION any_told(r anyelement) RETURNS text LANGUAGE sql STABLE AS $$ SELECT r::text $$;
        """ + functions.map { $0.joined(separator: "\n") }.joined(separator: "\n")

    /// Functions that policies call, each with its possible bodies.
    private static let functions: [[String]] = [
        [body("mine(o uuid)", "sql STABLE", "SELECT o = auth.uid()")],
        [
            body(
                "leads(t int)", "sql STABLE SECURITY DEFINER SET search_path = ''",
                "SELECT EXISTS (SELECT 1 FROM public.members m WHERE m.team = t AND m.person = auth.uid() AND m.role = 'lead')"
            )
        ],
        [body("asks(k text)", "plpgsql STABLE", "BEGIN RETURN k = auth.jwt() ->> 'sees'; END")],
        [
            "CREATE OR REPLACE FUNCTION teams() RETURNS SETOF int LANGUAGE sql STABLE SECURITY DEFINER SET search_path = '' AS $f$ SELECT m.team FROM public.members m WHERE m.person = auth.uid() $f$;"
        ],
    ]

    private static let replacements = [
        body("mine(o uuid)", "sql STABLE", "SELECT o = auth.uid()"),
        body("mine(o uuid)", "sql STABLE", "SELECT o IS NULL"),
        body("mine(o uuid)", "plpgsql STABLE", "BEGIN RETURN o IS DISTINCT FROM auth.uid(); END"),
        body("asks(k text)", "plpgsql STABLE", "BEGIN RETURN k = auth.jwt() ->> 'sees'; END"),
        body("asks(k text)", "plpgsql STABLE", "BEGIN IF k = 'b' THEN RAISE 'no'; END IF; RETURN true; END"),
        body("asks(k text)", "sql STABLE", "SELECT k = 'a'"),
        body(
            "leads(t int)", "sql STABLE SECURITY DEFINER SET search_path = ''",
            "SELECT EXISTS (SELECT 1 FROM public.members m WHERE m.team = t AND m.person = auth.uid())"),
        body(
            "leads(t int)", "sql STABLE",
            "SELECT EXISTS (SELECT 1 FROM public.members m WHERE m.team = t AND m.person = auth.uid() AND m.role = 'lead')"
        ), "REVOKE EXECUTE ON FUNCTION mine FROM PUBLIC;", "GRANT EXECUTE ON FUNCTION mine TO PUBLIC;",
        "REVOKE EXECUTE ON FUNCTION leads FROM PUBLIC;", "GRANT EXECUTE ON FUNCTION leads TO READER;",
    ]

    private static func body(_ head: String, _ kind: String, _ body: String) -> String {
        "CREATE OR REPLACE FUNCTION \(head) RETURNS boolean LANGUAGE \(kind) AS $f$ \(body) $f$;"
    }

    private static let simple = [
        "owner = auth.uid()", "owner = (SELECT auth.uid())", "owner = auth.uid()", "auth.uid() IS NOT NULL",
        "NOT (owner IS DISTINCT FROM auth.uid())", "owner <> auth.uid()", "true", "kind = 'a'", "NOT (kind = 'b')",
        "kind = auth.jwt() ->> 'sees'", "score <= (auth.jwt() ->> 'level')::numeric", "score > 1.5",
        "team = (auth.jwt() -> 'app' ->> 'team')::int", "coalesce(owner = auth.uid(), kind = 'a')",
        "auth.jwt() ->> 'sees' = ANY (tags)", "kind = ANY (ARRAY['a', NULL])", "kind <> ALL (ARRAY['a', NULL])",
        "kind NOT IN ('a', 'b')", "tags && ARRAY['x']", "data @> '{\"open\": true}'",
        "data ->> 'for' = auth.uid()::text",
        "rank >= 'high'", "label = 'a1'", "label IN ('a1', 'b2', 'c3')", "label IS NULL", "length(label) = 2",
        "body LIKE 'a%'", "current_user = 'READER'", "1 / (id - 3) >= 0", "now() > '2020-01-01'",
        "CASE WHEN kind = 'a' THEN owner = auth.uid() WHEN kind = 'b' THEN team > 1 END", "id % 2 = 0",
        "(auth.jwt() ->> 'sub') IS NULL", "length(body) > 2", "level > 1", "body IS NOT NULL", "length(body) < 9000",
        "owner::text = auth.jwt() ->> 'sub'",
        // Policies that depend on the encoding.
        "length(kind) = 1", "kind LIKE '_'", "kind > 'Б' COLLATE \"C\"", "kind <= 'Ц' COLLATE \"C\"", "kind = 'Ц'",
        "kind = ANY (ARRAY['Б', 'a'])", "data ->> 'for' = 'Б'", "data ->> 'for' LIKE '_'", "lower(kind) = lower('Б')",
        "kind || 'x' = 'Бx'", "btrim(kind, 'Б') = ''", "data @> '{\"for\": \"Б\"}'", "auth.jwt() ->> 'sees' LIKE '_'",
        // Policies that depend on settings.
        "(data ->> 'on')::date > '2026-02-15'", "('2026-02-03'::date + level::int)::text LIKE '2026%'",
        "(score::float8 + 0.1)::text = '1.6'", "(score / 3)::float8::text LIKE '%3'",
        "make_interval(days => level::int)::text = '1 day'", "left(decode(kind, 'escape')::text, 2) = '\\x'",
        "(auth.jwt() ->> 'on')::date = '2026-02-03'", "(auth.jwt() ->> 'on')::date > '2026-02-03'::date + level::int",
        "to_jsonb('2026-02-03'::date + level::int) ->> 0 LIKE '2026%'",
    ]
    /// Conditions on the row as a whole, and on results of functions of the row.
    static let wholeRows = [
        "to_jsonb(notes) ->> 'kind' = 'a'", "notes IS NOT NULL", "notes::text LIKE '%,a,%'", "(notes).team > 1",
        "NOT coalesce(row_to_json(notes) ->> 'body' = 'abc', false)", "told(notes) LIKE '%moved%'",
        "notes.told ~ 'low'",
        "any_told(notes.*) NOT LIKE '%high%'", "(SELECT (s.p).kind FROM (SELECT notes AS p) s) = 'b'",
        "EXISTS (SELECT FROM (SELECT notes.*) s WHERE s.score > 1)", "hashtext(concat(notes, auth.uid())) % 2 = 0",
        "EXISTS (SELECT FROM members m WHERE m.person = auth.uid() AND to_jsonb(notes) ->> 'team' = m.team::text)",
    ]
    private static let memberships = [
        "team IN (SELECT m.team FROM members m WHERE m.person = auth.uid())",
        "team IN (SELECT m.team FROM members m WHERE m.person = (SELECT auth.uid()))",
        "EXISTS (SELECT 1 FROM members m WHERE m.team = notes.team AND m.person = auth.uid() AND m.role = 'lead')",
        "auth.uid() IN (SELECT m.person FROM members m WHERE m.team = notes.team)",
        "NOT (team IN (SELECT m.team FROM members m WHERE m.person = auth.uid()))",
        "NOT EXISTS (SELECT 1 FROM members m WHERE m.team = notes.team AND m.person = auth.uid() AND m.role = 'out')",
        "leads(team)", "team IN (SELECT teams())", "team = ANY (ARRAY(SELECT teams()))",
        "EXISTS (SELECT 1 FROM members m WHERE m.person = auth.uid() AND m.role = 'lead')",
    ]
    private static let misses = [
        "team IN (SELECT DISTINCT ON (m.role) m.team FROM members m WHERE m.person = auth.uid() ORDER BY m.role, m.team)",
        "team IN (SELECT m.team FROM members m WHERE m.person = auth.uid() ORDER BY m.team LIMIT 1)",
        "EXISTS (SELECT 1 FROM members m WHERE m.team = notes.team OR m.person = auth.uid())",
        "EXISTS (SELECT 1 FROM members m JOIN members n USING (team) WHERE m.person = auth.uid() AND n.person = notes.owner)",
        "(SELECT count(*) FROM members m WHERE m.team = notes.team) > 1",
        "(SELECT m.role FROM members m WHERE m.person = auth.uid() ORDER BY 1 LIMIT 1) = 'lead'", "asks(kind)",
        "asks(label)",
        "mine(owner)", "mine(owner) OR asks(kind)",
    ]

    // MARK: Steps

    mutating func next() -> Step {
        var step = nextOfAny()
        step.sql = spelled(step.sql)
        return step
    }

    private mutating func nextOfAny() -> Step {
        switch Int.random(in: 0..<104, using: &random) {
        case 0..<58: return Step(sql: rows())
        case 58..<61: return Step(sql: "BEGIN;" + rows() + "ROLLBACK")
        case 61..<63: return Step(sql: "TRUNCATE members;" + rows())
        case 63..<64: return Step(sql: "TRUNCATE notes;" + rows())
        case 64..<80:
            return Step(sql: rowSecurity("ENABLE") + policySet() + (flip() ? rows() : ""))
        case 80..<83:
            return Step(sql: rowSecurity(flip() ? "DISABLE" : "ENABLE") + rows())
        case 83..<85: return Step(sql: rowSecurity("ENABLE") + rows())
        case 85..<87:
            hasExtraColumn.toggle()
            return Step(
                sql: "ALTER TABLE notes \(hasExtraColumn ? "ADD COLUMN extra int DEFAULT 7" : "DROP COLUMN extra");"
                    + rows())
        case 87..<89: return definition("ALTER TABLE members \(flip() ? "DISABLE" : "ENABLE") ROW LEVEL SECURITY")
        case 89..<91:
            let role = random.pick(["READER", "HUB"])
            return definition("\(flip() ? "REVOKE SELECT ON members FROM" : "GRANT SELECT ON members TO") \(role)")
        case 91..<95: return definition(random.pick(Self.replacements))
        case 95..<97:
            labels += 1
            return definition("ALTER TYPE rank ADD VALUE 'l\(labels)' \(flip() ? "BEFORE" : "AFTER") 'high'")
        case 97..<99:
            return Step(
                sql: flip() ? "REVOKE group_READER FROM READER, OUTSIDER" : "GRANT group_READER TO READER, OUTSIDER",
                isQuiet: true)
        case 100..<104 where keepsThePast: return Step(sql: rows() + retyped() + rows())
        default: return Step(sql: "ALTER ROLE OUTSIDER \(flip() ? "INHERIT" : "NOINHERIT")", isQuiet: true)
        }
    }

    /// Changes a column's type. Older rows still arrive after the catalog has the new type, so no policy may use the
    /// column.
    private mutating func retyped() -> String {
        levelType += 1
        let type = ["int", "bigint", "numeric", "double precision"][levelType % 4]
        return dropPolicies + "ALTER TABLE notes ALTER level TYPE \(type);" + policySet()
    }

    private func rowSecurity(_ change: String) -> String {
        ground.judged.map { "ALTER TABLE \($0) \(change) ROW LEVEL SECURITY;" }.joined()
    }

    private mutating func flip() -> Bool { Bool.random(using: &random) }

    private func definition(_ sql: String) -> Step { Step(sql: sql, isQuiet: !isToldOfDefinitions) }

    // MARK: Policies

    mutating func policySet() -> String {
        policies = []
        for number in 0..<random.pick([0, 1, 1, 1, 2, 2, 3, 4]) { policies.append(policy("p\(number)", "PERMISSIVE")) }
        for number in 0..<random.pick([0, 0, 0, 1, 1, 2, 3]) { policies.append(policy("r\(number)", "RESTRICTIVE")) }
        policies = policies.map(spelled)
        return dropPolicies
            + ground.judged.flatMap { table in policies.map { $0.replacing("notes", with: table) } }.joined()
    }

    private let dropPolicies = """
        DO $$ DECLARE p record; BEGIN
            FOR p IN SELECT polname, polrelid::regclass AS judged FROM pg_policy WHERE polrelid <> 'members'::regclass LOOP
                EXECUTE format('DROP POLICY %I ON %s', p.polname, p.judged);
            END LOOP;
        END $$;
        """

    /// SQL that replaces policies for the computation of expected results, if it needs other ones.
    var oraclePolicies: String {
        policies.enumerated().filter { ground.isBeyondRows($0.element) }
            .map { "ALTER POLICY \($0.element.split(separator: " ")[2]) ON notes USING (false);" }.joined()
    }

    private mutating func policy(_ name: String, _ kind: String) -> String {
        let command = random.pick(["SELECT", "SELECT", "ALL", "ALL", "UPDATE"])
        let roles = random.pick([
            "PUBLIC", "PUBLIC", "PUBLIC", "READER", "OUTSIDER", "group_READER", "READER, group_READER",
        ])
        return "CREATE POLICY \(name) ON notes AS \(kind) FOR \(command) TO \(roles) USING (\(expression(3)));"
    }

    private mutating func expression(_ depth: Int) -> String {
        if depth == 0 || Int.random(in: 0..<10, using: &random) < 6 {
            switch Int.random(in: 0..<10, using: &random) {
            case 0..<4: return random.pick(Self.simple)
            case 4: return random.pick(Self.wholeRows)
            case 5..<8: return random.pick(Self.memberships)
            default: return random.pick(Self.misses)
            }
        }
        let (one, two) = (expression(depth - 1), expression(depth - 1))
        return random.pick([
            "(\(one)) AND (\(two))", "(\(one)) OR (\(two))", "(\(one)) OR (\(two))", "NOT (\(one))", "(\(one)) IS TRUE",
            "(\(one)) IS NOT FALSE", "(SELECT (\(one)))",
        ])
    }

    /// True if the policy cannot avoid an error, because no other part of it can decide.
    var isPlain: Bool {
        policies.count == 1
            && ["OR", "AND", "CASE", "coalesce", "SELECT"].allSatisfy { word in
                policies[0].ranges(of: "USING").first.map { !policies[0][$0.upperBound...].contains(word) } ?? false
            }
    }

    // MARK: Rows

    private mutating func rows() -> String {
        (0..<Int.random(in: 1...4, using: &random)).map { _ in statement() }.joined()
    }

    private mutating func statement() -> String {
        let id = Int.random(in: 1...9, using: &random)
        switch Int.random(in: 0..<20, using: &random) {
        case 0..<7: return insert()
        case 7..<9: return "UPDATE notes SET owner = \(owner()), body = 'moved' WHERE id = \(id);"
        case 9..<11: return "UPDATE notes SET kind = \(kind()), team = \(team()), score = \(score()) WHERE id <= \(id);"
        case 11:
            return
                "UPDATE notes SET id = id + 10 WHERE id = \(id) AND NOT EXISTS (SELECT FROM notes n WHERE n.id = \(id + 10));"
        case 12:
            return "UPDATE notes SET rank = (SELECT max(r) FROM unnest(enum_range(NULL::rank)) r) WHERE id = \(id);"
        case 13: return "DELETE FROM notes WHERE id = \(id);"
        case 14: return "DELETE FROM notes WHERE id > \(id);"
        case 15..<17:
            return
                "INSERT INTO members VALUES (\(Int.random(in: 1...3, using: &random)), '\(Self.user(Int.random(in: 1...3, using: &random)))', '\(random.pick(["lead", "out", "none"]))') ON CONFLICT (team, person) DO UPDATE SET role = EXCLUDED.role;"
        case 17: return "DELETE FROM members WHERE team = \(Int.random(in: 1...3, using: &random));"
        case 18:
            return
                "UPDATE members m SET team = team + 1 WHERE team = 3 AND NOT EXISTS (SELECT FROM members n WHERE n.team = 4);"
        default: return savepoint()
        }
    }

    /// Returns statements with a savepoint, half of which a rollback undoes.
    private mutating func savepoint() -> String {
        """
        DO $$ BEGIN
            BEGIN
                \(insert()) INSERT INTO members VALUES (9, '\(Self.user(1))', 'lead') ON CONFLICT DO NOTHING;
                RAISE 'back';
            EXCEPTION WHEN OTHERS THEN NULL; END;
            \(insert())
        END $$;
        """
    }

    private mutating func insert() -> String {
        let values = [
            owner(), kind(), random.pick(["'abc'", "'b'", "''", "NULL", "repeat('a', 9000)", "repeat('b', 8999)"]),
            team(), score(),
            random.pick(["'{x,a}'", "'{}'", "NULL", "'{NULL,b}'"]),
            random.pick([
                "'{\"open\": true}'", "'{\"for\": \"Б\", \"on\": \"03/02/2026\"}'", "'{\"for\": \"\(Self.user(1))\"}'",
                "NULL", "'null'",
            ]),
            random.pick(["'low'", "'high'", "NULL"]), random.pick(["0", "1", "2", "3", "NULL"]),
        ]
        return
            "INSERT INTO notes (id, owner, kind, body, team, score, tags, data, rank, level) VALUES (\(Int.random(in: 1...9, using: &random)), \(values.joined(separator: ", "))) ON CONFLICT DO NOTHING;"
    }

    private mutating func owner() -> String {
        random.pick((1...3).map { "'\(Self.user($0))'" } + ["'\(Self.user(1))'", "NULL"])
    }
    private mutating func kind() -> String { random.pick(["'a'", "'b'", "'c'", "NULL", "'Б'", "'ЦБ'"]) }
    private mutating func team() -> String { random.pick(["1", "2", "3", "4", "NULL"]) }
    private mutating func score() -> String { random.pick(["1", "1.50", "2", "'NaN'", "NULL"]) }
}
