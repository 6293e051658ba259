import Postgres
import TestSupport
import Testing

extension GatewayPolicies {
    /// Tests of policies in databases with unusual settings. Each row must reach exactly the clients to which
    /// PostgreSQL shows it.
    @Suite(.serialized) struct SurroundingsTests {
        private static func schema(_ columns: String) -> String {
            """
            CREATE TABLE notes (\(columns)); ALTER TABLE notes REPLICA IDENTITY FULL;
            ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
            CREATE TABLE fences (id serial PRIMARY KEY);
            GRANT SELECT ON notes, fences TO READER;
            """
        }

        private static let moreClaims = #","d":"03/02/2026""#

        /// Checks that a client receives exactly the rows that it may select.
        private func compare(
            _ stage: GatewayStage, _ policies: [String], _ rows: [String], ofRole: [(String, String)] = []
        ) throws {
            for (number, policy) in policies.enumerated() {
                try stage.run(
                    "DELETE FROM notes; DROP POLICY IF EXISTS p ON notes; CREATE POLICY p ON notes USING (\(policy))")
                try stage.awaitCatalog()
                let caller = try stage.caller()
                try caller.subscribe(
                    "realtime:\(number)", [binding("notes"), binding("fences")],
                    token: stage.token(of: 1, Self.moreClaims))
                for (id, row) in rows.enumerated() { try stage.run("INSERT INTO notes VALUES (\(id), \(row))") }
                try stage.run("INSERT INTO fences DEFAULT VALUES")
                var heard: [Int] = []
                while true {
                    let change = try caller.change()
                    if change.data["table"] as? String == "fences" { break }
                    if change.type == "INSERT", let id = change.id { heard.append(id) }
                }
                #expect(try heard == shown(stage, ofRole), "\(policy)")
                caller.hangUp()
            }
        }

        /// Returns the rows that a new session sees, with the settings that clients' sessions and the role have.
        private func shown(_ stage: GatewayStage, _ ofRole: [(String, String)]) throws -> [Int] {
            let session = try Connection(stage.database.target, keepsSettings: true)
            try session.execute("BEGIN")
            for (name, value) in ofRole { try session.query("SELECT set_config($1, $2, true)", [name, value]) }
            try session.query(
                "SELECT set_config('request.jwt.claims', $1, true), set_config('role', $2, true)",
                [#"{"sub":"\#(GatewayStage.user(1))"\#(Self.moreClaims)}"#, stage.reader])
            return try session.query("SELECT id FROM notes ORDER BY id").values.compactMap { $0[0].flatMap { Int($0) } }
        }

        // MARK: Encodings

        @Test(arguments: ServerEncoding.others) func `text is judged in the database's encoding`(
            encoding: ServerEncoding
        ) throws {
            let letters =
                switch encoding {
                case .latin1: ["é", "ß", "Ä"]
                case .eucTW: ["中", "文", "語"]
                default: ["Б", "Ц", "б"]
                }
            let stage = try GatewayStage(
                Self.schema("id int PRIMARY KEY, kind text, meta jsonb"), publication: "FOR TABLE notes, fences", [],
                on: nil, encoding)
            let kinds = letters + ["a", "B", letters[0] + letters[1], "a" + letters[0], ""]
            try compare(
                stage,
                [
                    "length(kind) = 1", "kind LIKE '_'", "kind LIKE 'a_'", "kind > '\(letters[0])' COLLATE \"C\"",
                    "kind <= '\(letters[1])' COLLATE \"C\"", "kind = '\(letters[0])'", "kind <> '\(letters[1])'",
                    "meta ->> 'k' = '\(letters[0])'", "meta ->> 'k' LIKE '_'", "upper(kind) = upper('\(letters[2])')",
                    "kind IN ('\(letters[0])', 'a')", "btrim(kind, '\(letters[0])') = ''",
                ], kinds.map { #"'\#($0)', '{"k":"\#($0)"}'"# })
        }

        // MARK: Settings

        private static let columns = "id int PRIMARY KEY, at date, span interval, data bytea, ratio float8, meta jsonb"
        private static let more = """
            CREATE TABLE members (who uuid, at date, PRIMARY KEY (who, at)); ALTER TABLE members REPLICA IDENTITY FULL;
            INSERT INTO members VALUES ('\(GatewayStage.user(1))', '2026-02-03'), ('\(GatewayStage.user(2))', '2026-03-02');
            GRANT SELECT ON members TO READER, HUB;
            CREATE FUNCTION recent(d date) RETURNS boolean LANGUAGE sql STABLE AS $$ SELECT d > '01/02/2026'::date $$;
            """
        private static let values = [
            #"'2026-02-03', '1 day', '\x00ff', 0.1::float8 + 0.2, '{"d":"01/03/2026","i":"-1 2:03:04"}'"#,
            #"'2026-03-02', '-1 day 2 hours', 'ab', 0.3, '{"d":"03/01/2026","i":"1 day"}'"#,
            #"'2026-01-20', '1 year 2 mons', '\x5c', 1e20, '{"d":"12/02/2026","i":"-1 day"}'"#,
            #"NULL, NULL, NULL, NULL, '{"d":"2026-02-20","i":"-00:00:01"}'"#,
        ]
        private static let ofValues = [
            "(meta ->> 'd')::date > '2026-02-15'", "at::text = '2026-02-03'", "at::text LIKE '%3%'",
            "span::text = '1 day'", "(meta ->> 'i')::interval < '-1 day'", #"left(data::text, 2) = '\x'"#,
            "data::text = 'ab'", "ratio::text = '0.3'", "ratio::text LIKE '1%20'",
            "at = (auth.jwt() ->> 'd')::date", "(auth.jwt() ->> 'd')::date = ANY (ARRAY[at])",
            "at IN (SELECT m.at FROM members m WHERE m.who = auth.uid())", "recent(at)",
            "to_jsonb(notes) ->> 'data' = 'ab'", "notes::text LIKE '%0.3,%'", "at > '2026-02-01'",
            "span > '12 hours' AND data <> 'ab'",
        ]
        private static let settings: [[(String, String)]] = [
            [("datestyle", "ISO, DMY")], [("DateStyle", "German"), ("bytea_output", "escape")],
            [("datestyle", "SQL, DMY"), ("extra_float_digits", "0"), ("intervalstyle", "sql_standard")],
            [("intervalstyle", "iso_8601"), ("extra_float_digits", "-3"), ("timezone", "Asia/Tokyo")],
        ]

        @Test(arguments: settings.indices, [false, true]) func `values are judged under a client's own settings`(
            number: Int, ofRole: Bool
        ) throws {
            let settings = Self.settings[number]
            let set = settings.map { name, value in
                if ofRole { return "ALTER ROLE READER SET \(name) = '\(value)';" }
                let change = "ALTER DATABASE %I SET \(name) = ''\(value)''"
                return "DO $$ BEGIN EXECUTE format('\(change)', current_database()); END $$;"
            }
            let stage = try GatewayStage(
                Self.schema(Self.columns) + Self.more + set.joined(), publication: "FOR TABLE notes, fences",
                followed: "members")
            try compare(stage, Self.ofValues, Self.values, ofRole: ofRole ? settings : [])
        }

        @Test func `settings of a role that come or go are noticed`() throws {
            let stage = try GatewayStage(
                Self.schema(Self.columns) + Self.more, publication: "FOR TABLE notes, fences")
            for settings in [[], [("datestyle", "ISO, DMY")], [], [("datestyle", "German")]] {
                try stage.run("ALTER ROLE READER RESET ALL")
                for (name, value) in settings { try stage.run("ALTER ROLE READER SET \(name) = '\(value)'") }
                try compare(stage, Array(Self.ofValues.prefix(2)), Self.values, ofRole: settings)
            }
        }

        @Test func `nobody reads by policies where arrays are read in another way`() throws {
            let stage = try GatewayStage(
                Self.schema("id int PRIMARY KEY, kind text")
                    + "ALTER ROLE READER SET array_nulls = off; CREATE POLICY p ON notes USING (kind = 'a');",
                publication: "FOR TABLE notes, fences")
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("notes"), binding("fences")], token: stage.token(of: 1))
            try stage.run("INSERT INTO notes VALUES (1, 'a'); INSERT INTO fences DEFAULT VALUES")
            #expect(try caller.change().data["table"] as? String == "fences")
        }
    }
}
