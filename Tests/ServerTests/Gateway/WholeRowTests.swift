import Postgres
import TestSupport
import Testing

@testable import Server

extension GatewayRows {
    /// Tests of policies that read the row as a whole. PostgreSQL must evaluate them on the row as committed, or not at
    /// all.
    @Suite(.serialized) struct WholeRowTests {
        private static let tables = """
            CREATE TABLE fences (id int PRIMARY KEY);
            CREATE TABLE posts (gone int, id int PRIMARY KEY, is_private boolean, body text, "odd ""name" text, n numeric(6,2),
                tags text[]);
            ALTER TABLE posts DROP COLUMN gone;
            ALTER TABLE posts REPLICA IDENTITY FULL; ALTER TABLE posts ENABLE ROW LEVEL SECURITY;
            GRANT SELECT ON posts, fences TO READER, OUTSIDER;
            \(WholeRowShapes.functions(of: "posts"))
            """
        private static let rows = """
            INSERT INTO posts (id, is_private, body, "odd ""name", n, tags) VALUES
                (1, true, 'TOP SECRET', 'a', 1.5, '{x}'), (2, false, 'plain', 'b', 2, '{y,z}'), (3, NULL, NULL, NULL, NULL, NULL),
                (4, false, 'a secret "quoted, (thing)', '', 0.10, '{}'), (5, true, '', 'secret', NULL, '{NULL,"a b"}'),
                (6, false, 'all is there', 'c', 3, '{t}');
            """

        private func stage(_ more: String = "", publication: String = "FOR TABLE posts, fences") throws -> GatewayStage
        {
            try GatewayStage(Self.tables + more, publication: publication)
        }

        private func listener(_ stage: GatewayStage) throws -> Caller {
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("posts"), binding("fences")], token: stage.token())
            return caller
        }

        /// Returns all messages about `posts` that the caller has received so far.
        private func heard(_ caller: Caller, _ stage: GatewayStage) throws -> [Message] {
            let fence = try Int(stage.database.value("SELECT count(*) + 1 FROM fences") ?? "") ?? 0
            try stage.run("INSERT INTO fences VALUES (\(fence))")
            var heard: [Message] = []
            while true {
                let change = try caller.change()
                if change.data["table"] as? String != "fences" {
                    heard.append(change)
                } else if change.id == fence {
                    return heard
                }
            }
        }

        /// Returns the rows that PostgreSQL shows the reader; nil if PostgreSQL raises an error.
        private func shown(_ stage: GatewayStage) throws -> [Int]? {
            defer { _ = try? stage.run("ROLLBACK") }
            try stage.run("BEGIN")
            try stage.run("SET LOCAL ROLE READER")
            guard let rows = try? stage.run("SELECT id FROM posts ORDER BY id") else { return nil }
            return rows.values.compactMap { $0[0].flatMap { Int($0) } }
        }

        private func compare(_ condition: String, _ caller: Caller, _ stage: GatewayStage) throws -> Int {
            try stage.run("DROP POLICY IF EXISTS p ON posts; DELETE FROM posts")
            _ = try heard(caller, stage)
            try stage.run("CREATE POLICY p ON posts FOR SELECT USING (\(condition))")
            try stage.run(Self.rows)
            let shown = try shown(stage)
            let inserted = try heard(caller, stage).filter { $0.type == "INSERT" }.compactMap(\.id)
            // A statement fails as a whole if one row causes an error. The hub evaluates each row on its own, so others
            // may succeed.
            guard let shown else { return 0 }
            #expect(inserted == shown, "USING (\(condition))")
            try stage.run("DELETE FROM posts")
            let deleted = try heard(caller, stage).compactMap { $0.old["id"] as? Int }
            #expect(deleted == shown, "deletes under USING (\(condition))")
            return shown.count
        }

        @Test func `whole rows in every shape are judged as PostgreSQL judges them`() throws {
            let stage = try stage()
            let caller = try listener(stage)
            let conditions = [
                "NOT coalesce((to_jsonb(posts) ->> 'is_private')::bool, false)", "posts IS NOT NULL",
                "posts::text NOT LIKE '%SECRET%'", "row_to_json(posts) ->> 'is_private' = 'false'", "NOT sealed(posts)",
                "NOT posts.sealed", "any_told(posts) NOT LIKE '%t%'", "told_of(posts) LIKE '%false%'",
                "EXISTS (SELECT FROM (SELECT posts.*) s WHERE NOT s.is_private)", "(posts).is_private IS FALSE",
                "(SELECT NOT (s.p).is_private FROM (SELECT posts AS p) s)", "num_nulls(VARIADIC ARRAY[posts]) = 0",
                "posts IS NOT DISTINCT FROM ROW(2, false, 'plain'::text, 'b'::text, 2::numeric, '{y,z}'::text[])",
                "EXISTS (SELECT FROM (VALUES (1)) AS posts (n) WHERE posts IS NOT NULL) AND posts IS NOT NULL",
            ]
            let shown = try conditions.map { try compare($0, caller, stage) }
            #expect(shown.contains { $0 > 0 } && shown.contains { $0 < 6 })
        }

        /// Checks random conditions; `SEED=n` repeats one seed.
        @Test(arguments: seeds(2)) func `generated conditions on whole rows are judged as PostgreSQL judges them`(
            seed: Seed
        ) throws {
            let stage = try stage()
            let caller = try listener(stage)
            var shapes = WholeRowShapes(seed: seed, of: "posts")
            var shown = 0
            for _ in 0..<12 { shown += try compare(shapes.expression(), caller, stage) }
            #expect(shown > 0)
        }

        @Test(arguments: [
            "tableoid = 'posts'::regclass", "ctid IS NOT NULL", "posts.xmin IS NOT NULL AND is_private IS FALSE",
            "pg_column_size(body) < 1000", "(SELECT posts.cmin IS NOT NULL)",
        ])
        func `what a row does not carry is not judged, and the join says so`(condition: String) throws {
            let stage = try stage("CREATE POLICY p ON posts FOR SELECT USING (\(condition));")
            let caller = try listener(stage)
            try stage.run(Self.rows)
            #expect(try heard(caller, stage).isEmpty)
            #expect(
                caller.takeUnheard().contains { $0.said?.contains("which changes do not carry") == true })
        }

        /// Checks a row that is deleted before a column's type changes. PostgreSQL must evaluate the policy on the
        /// converted value, and the client must receive the old value.
        @Test func `rows that are deleted before a column is another are judged whole`() throws {
            let policy =
                "CREATE POLICY whole ON posts FOR SELECT TO PUBLIC USING (to_jsonb(posts) ->> 'body' <> 'TOP SECRET');"
            let stage = try stage(policy)
            let caller = try listener(stage)
            try stage.run(Self.rows)
            #expect(try heard(caller, stage).map(\.id) == [2, 4, 5, 6])
            try stage.run(
                """
                UPDATE posts SET n = 7 WHERE id < 3; DELETE FROM posts;
                DROP POLICY whole ON posts; ALTER TABLE posts ALTER n TYPE double precision; \(policy)
                INSERT INTO posts (id, body) VALUES (9, 'new');
                """)
            let changes = try heard(caller, stage)
            #expect(changes.map(\.type) == ["UPDATE", "DELETE", "DELETE", "DELETE", "DELETE", "INSERT"], "\(changes)")
        }

        @Test func `a type that somebody casts text to by a function is not read from texts`() throws {
            let stage = try stage(
                """
                CREATE TYPE secrecy AS (level int);
                CREATE FUNCTION made_plain(text) RETURNS secrecy LANGUAGE sql IMMUTABLE AS 'SELECT ROW(0)::secrecy';
                CREATE CAST (text AS secrecy) WITH FUNCTION made_plain(text);
                ALTER TABLE posts ADD COLUMN secrecy secrecy;
                CREATE POLICY p ON posts FOR SELECT USING ((secrecy).level < 5 AND to_jsonb(posts) IS NOT NULL);
                """)
            let caller = try listener(stage)
            try stage.run("INSERT INTO posts (id, secrecy) VALUES (1, ROW(9)), (2, ROW(1))")
            #expect(try heard(caller, stage).isEmpty)
            #expect(caller.takeUnheard().contains { $0.said?.contains("a cast from text that somebody made") == true })
            // PostgreSQL does not report casts. The hub reads the change of the table in commit order.
            try stage.run(
                """
                DROP CAST (text AS secrecy);
                ALTER TABLE posts ADD COLUMN more int;
                INSERT INTO posts (id, secrecy) VALUES (3, ROW(9)), (4, ROW(1));
                """)
            #expect(try heard(caller, stage).compactMap(\.id) == [4])
        }

        @Test func `a policy that can be judged counts beside one that cannot`() throws {
            let stage = try stage(
                """
                CREATE POLICY p ON posts FOR SELECT USING (xmin IS NOT NULL OR id = 3);
                CREATE POLICY q ON posts FOR SELECT USING (posts::text LIKE '%plain%');
                """)
            let caller = try listener(stage)
            try stage.run(Self.rows)
            // The hub still decides policies that read only columns.
            #expect(try heard(caller, stage).compactMap(\.id) == [2, 3])
        }

        @Test(.postgres(15))
        func `a column that changes do not carry is missed by whoever looks at the whole row, and by nobody else`()
            throws
        {
            let stage = try stage(
                "ALTER TABLE posts REPLICA IDENTITY DEFAULT;"
                    + "CREATE POLICY p ON posts FOR SELECT USING (told(posts) LIKE '%secret%' OR n > 2);",
                publication: "FOR TABLE posts (id, is_private, n), fences")
            let caller = try listener(stage)
            try stage.run(Self.rows)
            #expect(try heard(caller, stage).compactMap(\.id) == [6])
            #expect(caller.takeUnheard().contains { $0.said?.contains("reads whole rows") == true })
            try stage.run(
                """
                DROP POLICY p ON posts;
                CREATE POLICY p ON posts FOR SELECT USING (n > 2 AND left(is_private::text, 1) ~ 'f');
                DELETE FROM posts; \(Self.rows)
                """)
            #expect(try heard(caller, stage).filter { $0.type == "INSERT" }.compactMap(\.id) == [6])
        }
    }
}
