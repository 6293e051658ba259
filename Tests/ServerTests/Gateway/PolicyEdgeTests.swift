import System
import TestSupport
import Testing

@testable import Server

extension GatewayPolicies {
    /// Edge cases of policies from the table's change to the client's socket.
    ///
    /// Tests of the forty cases in the specification:
    ///
    ///     1 2 3 4          PolicyBindingTests, `policies together say what PostgreSQL says`
    ///     5 6 7 8          PolicyBindingTests, `memberships between roles count as they do for PostgreSQL`;
    ///                      CatalogTests, `row security is active for whom the server says`
    ///     9 to 14          RowVerdictTests (generated); PolicyHistoryTests
    ///     15 to 19         PolicyHistoryTests, the claims of its clients; RowVerdictTests
    ///     20 to 26         RowVerdictTests; PolicyHistoryTests for ADD VALUE while clients listen
    ///     27 to 30         RowVerdictTests; CheckerTests, `is left to PostgreSQL`
    ///     31 32            here
    ///     33               RowSecurityTests, `deletes of rows whose past is not kept …`
    ///     34               RowSecurityTests, `a row that changes hands …`; PolicyHistoryTests; here with its key
    ///     35               PolicyBindingTests, `leaf and root have their own policies`; here
    ///     36               RowSecurityTests, `policies that change are the ones that count`; PolicyBarrierTests;
    ///                      HazardTests for rights
    ///     37               PolicyReadingTests, `a function that is replaced is noticed`; here
    ///     38               RowSecurityTests, `within a transaction membership is as it is when the transaction ends`
    ///     39               RowSecurityTests for TRUNCATE; here for the others
    ///     40               HazardTests, `what waits for a standby is not lost`; MembershipFillTests
    @Suite(.serialized) struct PolicyEdgeTests {
        private static let tables = """
            CREATE TABLE notes (id int PRIMARY KEY, owner uuid, kind text, body text, team int);
            CREATE TABLE members (team int, person uuid, PRIMARY KEY (team, person));
            CREATE TABLE fences (id int PRIMARY KEY);
            ALTER TABLE notes REPLICA IDENTITY FULL; ALTER TABLE members REPLICA IDENTITY FULL;
            ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
            GRANT SELECT ON notes, members, fences TO READER;
            """

        private func stage(_ sql: String, publication: String = "FOR TABLE notes, fences") throws -> GatewayStage {
            try GatewayStage(Self.tables + sql, publication: publication, followed: "members")
        }

        private func user(_ number: Int, _ stage: GatewayStage, _ table: String = "notes") throws -> Caller {
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding(table), binding("fences")], token: stage.token(of: number))
            return caller
        }

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

        private static func person(_ number: Int) -> String { "'\(GatewayStage.user(number))'" }

        /// Checks a query for which one policy lacks a right: PostgreSQL refuses it, whatever the other policies allow.
        @Test(arguments: [
            (
                "auth.uid() IS NOT NULL",
                "EXISTS (SELECT FROM members m JOIN members n USING (team) WHERE n.person = owner)"
            ),
            ("auth.uid() IS NOT NULL", "asks(kind)"), ("kind IS NOT NULL", "(SELECT count(*) FROM members) >= 0"),
            ("true", "EXISTS (SELECT FROM members m JOIN members n USING (team) WHERE n.person = owner)"),
            ("true", "asks(kind)"),
        ])
        func `rights are asked for before rows are looked at`(plain: String, forbidden: String) throws {
            let stage = try stage(
                """
                CREATE FUNCTION asks(k text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN true; END $$;
                REVOKE SELECT ON members FROM READER; REVOKE EXECUTE ON FUNCTION asks FROM PUBLIC;
                CREATE POLICY plain ON notes FOR SELECT TO READER USING (\(plain));
                CREATE POLICY forbidden ON notes FOR SELECT TO READER USING (\(forbidden));
                """)
            let caller = try user(1, stage)
            try stage.run("INSERT INTO notes VALUES (1, \(Self.person(1)), 'a', 'b', 1)")
            // PostgreSQL's planner removes a condition that is always true, and does not check its rights.
            let isShown = plain == "true"
            #expect(try heard(caller, stage).count == (isShown ? 1 : 0))
            try stage.run("GRANT SELECT ON members TO READER; GRANT EXECUTE ON FUNCTION asks TO PUBLIC")
            try stage.awaitCatalog()
            try stage.run("INSERT INTO notes VALUES (2, \(Self.person(1)), 'a', 'b', 1)")
            #expect(try heard(caller, stage).count == 1)
        }

        /// Checks that an error counts only if PostgreSQL evaluates the policy that raises it. PostgreSQL begins with
        /// the last permissive policy.
        @Test func `policies are asked in PostgreSQL's order`() throws {
            let stage = try stage(
                """
                CREATE FUNCTION asks(k text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
                BEGIN IF k = 'b' THEN RAISE 'no'; END IF; RETURN k = 'a'; END $$;
                CREATE POLICY a ON notes FOR SELECT TO READER USING (asks(kind));
                CREATE POLICY b ON notes FOR SELECT TO READER USING (asks(body));
                """)
            let caller = try user(1, stage)
            try stage.run(
                "INSERT INTO notes VALUES (1, NULL, 'b', 'a', 1), (2, NULL, 'a', 'b', 1), (3, NULL, 'a', 'a', 1)")
            #expect(try heard(caller, stage).map(\.id) == [1, 3])
        }

        @Test func `a large value that a change leaves as it is still decides`() throws {
            let stage = try stage(
                "ALTER TABLE notes ALTER body SET STORAGE EXTERNAL;"
                    + "CREATE POLICY p ON notes USING (right(body, 1) = 'y'); CREATE POLICY q ON notes USING (body = 'z');"
            )
            let one = try user(1, stage)
            try stage.run(
                "INSERT INTO notes VALUES (1, NULL, 'a', repeat('x', 9999) || 'y'), (2, NULL, 'a', repeat('x', 9999))")
            try stage.run("UPDATE notes SET kind = 'b'")
            let heard = try heard(one, stage)
            #expect(heard.map(\.id) == [1, 1] && heard[1].old.count == 5)
            #expect((heard[1].record["body"] as? String)?.hasSuffix("xy") == true)
            // The change lacks the old row, but the log has it.
            try stage.run("ALTER TABLE notes REPLICA IDENTITY DEFAULT; UPDATE notes SET kind = 'c'")
            let again = try self.heard(one, stage)
            #expect(again.map(\.id) == [1])
            #expect((again[0].record["body"] as? String)?.hasSuffix("xy") == true)
        }

        @Test func `a generated column decides though changes do not carry it`() throws {
            let stage = try stage(
                "ALTER TABLE notes ADD COLUMN half int GENERATED ALWAYS AS (team / 2) STORED;"
                    + "CREATE POLICY p ON notes USING (half = 1); CREATE POLICY q ON notes USING (kind = 'open');")
            let one = try user(1, stage)
            try stage.run("INSERT INTO notes (id, kind, team) VALUES (1, 'a', 2), (2, 'open', 9), (3, 'open', 2)")
            #expect(try heard(one, stage).map(\.id) == [1, 2, 3])
            #expect(!one.takeUnheard().contains { $0.said?.contains("half") == true })
        }

        @Test func `a key that changes takes nothing along that was hidden`() throws {
            let stage = try stage("CREATE POLICY p ON notes USING (owner = auth.uid());")
            let (one, two) = (try user(1, stage), try user(2, stage))
            try stage.run("INSERT INTO notes VALUES (1, \(Self.person(1)), 'a', 'secret')")
            try stage.run("UPDATE notes SET id = 2, owner = \(Self.person(2)), body = 'b'")
            try stage.run("UPDATE notes SET id = 3, owner = \(Self.person(1))")
            let (ofOne, ofTwo) = (try heard(one, stage), try heard(two, stage))
            #expect(ofOne.map(\.type) == ["INSERT", "UPDATE"] && ofOne[1].old.isEmpty)
            #expect(ofTwo.map(\.type) == ["UPDATE"] && ofTwo[0].old.isEmpty)
        }

        @Test func `a partition's rows are judged as those of the table that was asked for`() throws {
            for viaRoot in [true, false] {
                let stage = try stage(
                    """
                    CREATE TABLE parts (id int PRIMARY KEY, owner uuid) PARTITION BY RANGE (id);
                    CREATE TABLE leaf (owner uuid, gone int, id int NOT NULL);
                    ALTER TABLE leaf DROP COLUMN gone;
                    ALTER TABLE parts ATTACH PARTITION leaf FOR VALUES FROM (0) TO (100);
                    ALTER TABLE parts ENABLE ROW LEVEL SECURITY; ALTER TABLE leaf ENABLE ROW LEVEL SECURITY;
                    CREATE POLICY root ON parts USING (owner = auth.uid()); CREATE POLICY leaf ON leaf USING (owner IS NULL);
                    GRANT SELECT ON parts, leaf TO READER;
                    """, publication: "FOR TABLE parts, fences WITH (publish_via_partition_root = \(viaRoot))")
                let one = try user(1, stage, viaRoot ? "parts" : "leaf")
                try stage.run("INSERT INTO parts VALUES (1, \(Self.person(1))), (2, NULL), (3, \(Self.person(2)))")
                #expect(try heard(one, stage).map(\.id) == (viaRoot ? [1] : [2]), "\(viaRoot)")
            }
        }

        @Test func `a function is replaced, and its policy's table is not touched`() throws {
            let function = "CREATE OR REPLACE FUNCTION sees(kind text) RETURNS boolean STABLE LANGUAGE "
            let stage = try stage(
                function + "sql AS $$ SELECT kind = 'a' $$; CREATE POLICY p ON notes USING (sees(kind));")
            let one = try user(1, stage)
            func rows(_ start: Int) -> String {
                "INSERT INTO notes (id, kind) VALUES (\(start), 'a'), (\(start + 1), 'b')"
            }
            try stage.run(rows(1))
            #expect(try heard(one, stage).map(\.id) == [1])
            try stage.run(function + "sql AS $$ SELECT kind = 'b' $$")
            try stage.awaitCatalog()
            try stage.run(rows(11))
            #expect(try heard(one, stage).map(\.id) == [12])
            try stage.run(function + "plpgsql AS $$ BEGIN RETURN kind = 'a'; END $$")
            try stage.awaitCatalog()
            try stage.run(rows(21))
            #expect(try heard(one, stage).map(\.id) == [21])
            try stage.run("DROP FUNCTION sees CASCADE")
            try stage.awaitCatalog()
            try stage.run(rows(31))
            #expect(try heard(one, stage).isEmpty)
        }

        @Test func `what happens to a membership's table counts`() throws {
            let stage = try stage(
                """
                CREATE FUNCTION among(wanted int) RETURNS boolean LANGUAGE sql STABLE AS $$
                    SELECT EXISTS (SELECT 1 FROM members m WHERE m.team = wanted AND m.person = auth.uid()) $$;
                CREATE POLICY p ON notes USING (among(team));
                """
                    + "INSERT INTO members VALUES (1, \(Self.person(1))), (2, \(Self.person(2)));")
            let one = try user(1, stage)
            #expect(eventually { stage.hub.follows("members") })
            func rows(_ start: Int) -> String {
                "INSERT INTO notes (id, team) SELECT \(start) + t, t FROM generate_series(1, 5) t"
            }
            try stage.run(rows(0))
            #expect(try heard(one, stage).map(\.id) == [1])
            // The rewrite of the table sends no change of a row.
            try stage.run("ALTER TABLE members ALTER team TYPE int USING team + 1")
            try stage.awaitCatalog()
            try stage.run(rows(10))
            #expect(try heard(one, stage).map(\.id) == [12])
            try stage.run("ALTER TABLE members ENABLE ROW LEVEL SECURITY")
            try stage.awaitCatalog()
            try stage.run(rows(20))
            #expect(try heard(one, stage).isEmpty)
            try stage.run("CREATE POLICY own ON members USING (person = auth.uid())")
            try stage.awaitCatalog()
            try stage.run(rows(30))
            #expect(try heard(one, stage).map(\.id) == [32])
            try stage.run("TRUNCATE members; INSERT INTO members VALUES (5, \(Self.person(1)));" + rows(40))
            #expect(try heard(one, stage).map(\.id) == [45])
            try stage.run("DROP TABLE members CASCADE")
            try stage.awaitCatalog()
            try stage.run(rows(50))
            #expect(try heard(one, stage).isEmpty)
        }

        @Test func `a prepared transaction counts when it is committed, and one taken back never`() throws {
            let stage = try stage("CREATE POLICY p ON notes USING (kind = 'a');")
            let one = try user(1, stage)
            let row = "INSERT INTO notes (id, kind) SELECT g, 'a' FROM generate_series("
            try stage.run("BEGIN;" + row + "1, 3) g; PREPARE TRANSACTION 'kept_\(stage.database.name)'")
            try stage.run("BEGIN;" + row + "11, 5000) g; ROLLBACK")
            try stage.run(row + "6001, 6001) g")
            try stage.run("COMMIT PREPARED 'kept_\(stage.database.name)'")
            #expect(try heard(one, stage).map(\.id) == [6001, 1, 2, 3])
        }
    }
}
