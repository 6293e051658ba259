import Diagnostics
import Embedded
import Postgres
import System
import TestSupport
import Testing

@testable import Server

extension GatewayTraffic {
    /// Tests of errors that would occur if policies were evaluated on the table's later contents. The hub must make
    /// none of them.
    ///
    /// Other tests cover further cases. `a row that changes hands is shown to whom it belongs` in `RowSecurityTests`
    /// covers the earlier versions of a row. `PolicyLoginTests` also covers changes of a policy's code.
    @Suite(.serialized) struct HazardTests {
        private static let tables = """
            CREATE TABLE notes (id int PRIMARY KEY, owner uuid, kind text, body text);
            CREATE TABLE fences (id int PRIMARY KEY);
            ALTER TABLE notes REPLICA IDENTITY FULL; ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
            GRANT SELECT ON notes, fences TO READER; GRANT SELECT ON fences TO OUTSIDER;
            """
        private static let owners = "CREATE POLICY own ON notes FOR SELECT USING (owner = auth.uid());"

        private func stage(_ policies: String, on cluster: PrivateCluster? = nil) throws -> GatewayStage {
            try GatewayStage(Self.tables + policies, publication: "FOR TABLE notes, fences", on: cluster)
        }

        private func user(
            _ number: Int, _ stage: GatewayStage, _ notes: String = binding("notes"), claims: String = ""
        ) throws -> Caller {
            let caller = try stage.caller()
            try caller.subscribe(
                "realtime:a", [notes, binding("fences")], token: stage.token(of: number, claims))
            return caller
        }

        /// Returns the messages about the notes that each caller has received so far.
        private func heard(_ callers: Caller..., at stage: GatewayStage) throws -> [[Message]] {
            let fence = try Int(stage.database.value("SELECT count(*) + 1 FROM fences") ?? "") ?? 0
            try stage.run("INSERT INTO fences VALUES (\(fence))")
            return try callers.map { caller in
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
        }

        private static func insert(_ id: Int, _ owner: Int, _ kind: String = "x", _ body: String = "b") -> String {
            "INSERT INTO notes VALUES (\(id), '\(GatewayStage.user(owner))', '\(kind)', '\(body)');"
        }

        @Test func `each image of a row is judged by itself, and not by what the row is now`() throws {
            let stage = try stage(Self.owners)
            let (one, two) = (try user(1, stage), try user(2, stage))
            let moved = "UPDATE notes SET owner = '\(GatewayStage.user(2))', body = 'moved' WHERE id = 1;"
            // The row belongs to another user before any client could see it.
            try stage.run("BEGIN;" + Self.insert(1, 1, "x", "secret") + moved + "COMMIT")
            let heard = try heard(one, two, at: stage)
            #expect(heard[0].map(\.type) == ["INSERT"] && heard[0][0].record["body"] as? String == "secret")
            #expect(heard[1].map(\.type) == ["UPDATE"] && heard[1][0].old.isEmpty)
        }

        @Test func `deletes are told to nobody who could not see the row, whatever their filters`() throws {
            let stage = try stage(Self.owners)
            let (one, two) = (try user(1, stage), try user(2, stage))
            let guessing = try user(2, stage, binding("notes", "DELETE", filter: "body=like.top secret%"))
            let outsider = try stage.caller()
            try outsider.join(
                "realtime:a", [binding("notes"), binding("fences")], token: stage.token(stage.outsider))
            try stage.run(Self.insert(1, 1, "x", "top secret plan") + "DELETE FROM notes;")
            let heard = try heard(one, two, guessing, at: stage)
            #expect(heard[0].map(\.type) == ["INSERT", "DELETE"])
            #expect(heard[1].isEmpty && heard[2].isEmpty)
            #expect(try outsider.change().data["table"] as? String == "fences")
            #expect(outsider.takeUnheard().allSatisfy { $0.event != "postgres_changes" })
        }

        @Test func `a row that came and went at once was there`() throws {
            let stage = try stage(Self.owners)
            let one = try user(1, stage)
            try stage.run("BEGIN;" + Self.insert(1, 1) + "DELETE FROM notes; COMMIT")
            #expect(try heard(one, at: stage)[0].map(\.type) == ["INSERT", "DELETE"])
        }

        @Test func `whose policies fail sees nothing, and everybody else all of theirs`() throws {
            let stage = try stage(
                """
                CREATE TABLE locked (person uuid); CREATE SCHEMA closed;
                CREATE FUNCTION closed.sees() RETURNS boolean LANGUAGE plpgsql STABLE AS 'BEGIN RETURN true; END';
                CREATE POLICY own ON notes FOR SELECT TO READER USING (owner = auth.uid());
                CREATE POLICY locked ON notes FOR SELECT TO OUTSIDER USING (EXISTS (SELECT 1 FROM locked));
                GRANT SELECT ON notes TO OUTSIDER;
                """)
            let one = try user(1, stage)
            let broken = try user(1, stage, claims: #","sub":"nobody""#)
            let filtering = try user(1, stage, binding("notes", filter: "kind=eq.x"))
            let outsider = try stage.caller()
            try outsider.subscribe(
                "realtime:a", [binding("notes"), binding("fences")], token: stage.token(stage.outsider))
            try stage.run(Self.insert(1, 1))
            var heard = try heard(one, broken, filtering, outsider, at: stage)
            #expect(heard.map { $0.map(\.id) } == [[1], [], [1], []])
            // The filter's value is no longer a value of the column.
            try stage.run(
                "ALTER TABLE notes ALTER kind TYPE int USING 7;" + Self.insert(2, 1, "8")
                    + "ALTER POLICY locked ON notes USING (closed.sees() OR id = 3);" + Self.insert(3, 1, "9"))
            heard = try self.heard(one, broken, filtering, outsider, at: stage)
            #expect(heard[0].map(\.id) == [2, 3] && heard[1].isEmpty && heard[2].isEmpty)
        }

        @Test func `a policy's code gains nothing by what it calls`() throws {
            let stage = try stage(
                """
                CREATE FUNCTION grabs() RETURNS boolean LANGUAGE plpgsql AS $$
                BEGIN
                    PERFORM set_config('role', 'postgres', true);
                    RETURN true;
                END $$;
                CREATE FUNCTION writes() RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER AS $$
                BEGIN
                    INSERT INTO notes VALUES (1000);
                    RETURN true;
                END $$;
                CREATE POLICY open ON notes USING (kind = 'open' OR kind = 'grab' AND grabs() OR kind = 'write' AND writes());
                """)
            let one = try user(1, stage)
            try stage.run(Self.insert(1, 1, "open") + Self.insert(2, 1, "grab") + Self.insert(3, 1, "write"))
            try stage.run(Self.insert(4, 1, "open"))
            #expect(try heard(one, at: stage)[0].map(\.id) == [1, 4])
            #expect(try stage.database.value("SELECT count(*) FROM notes WHERE id = 1000") == "0")
        }

        @Test func `who may not read a table with policies is not told when it changes`() throws {
            let stage = try stage("CREATE POLICY open ON notes USING (true);")
            let one = try user(1, stage)
            try stage.run(Self.insert(1, 1))
            #expect(try heard(one, at: stage)[0].map(\.id) == [1])
            try stage.run("REVOKE SELECT ON notes FROM READER;" + Self.insert(2, 1) + "DELETE FROM notes;")
            #expect(try heard(one, at: stage)[0].isEmpty)
            try stage.run("GRANT SELECT ON notes TO READER;" + Self.insert(3, 1))
            #expect(try heard(one, at: stage)[0].map(\.id) == [3])
        }

        @Test func `a column that may not be read any more filters nothing`() throws {
            let stage = try stage("CREATE POLICY open ON notes USING (true);")
            let (one, all) = (try user(1, stage, binding("notes", filter: "body=like.top%")), try user(2, stage))
            try stage.run(
                "REVOKE SELECT ON notes FROM READER; GRANT SELECT (id, owner) ON notes TO READER;"
                    + Self.insert(1, 1, "x", "top secret") + "DELETE FROM notes;")
            let heard = try heard(one, all, at: stage)
            #expect(heard[0].isEmpty)
            #expect(heard[1].map(\.type) == ["INSERT", "DELETE"])
            #expect(heard[1][0].record.keys.sorted() == ["id", "owner"])
            #expect(heard[1][1].old.keys.sorted() == ["id", "owner"])
        }

        @Test func `what waits for a standby is not lost`() throws {
            let cluster = try TestCluster.fresh()
            defer { cluster.stop() }
            let stage = try stage(
                """
                CREATE TABLE members (team text, person uuid); GRANT SELECT ON members TO READER;
                CREATE FUNCTION sees(kind text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
                BEGIN RETURN EXISTS (SELECT FROM members m WHERE m.team = kind AND m.person = auth.uid()); END $$;
                CREATE POLICY asked ON notes FOR SELECT USING (kind = 'open' OR sees(kind));
                """, on: cluster)
            let one = try user(1, stage)
            try stage.standbyStaysAway()
            let sql =
                "BEGIN; INSERT INTO members VALUES ('asked', '\(GatewayStage.user(1))');" + Self.insert(1, 1, "asked")
                + Self.insert(2, 1, "hidden") + Self.insert(3, 1, "open") + "COMMIT"
            let writing = try stage.writeInBackground(sql)
            #expect(try eventually { try stage.waitingForStandby() == 1 })
            try stage.awaitLog()
            try one.fence()
            #expect(try stage.database.value("SELECT count(*) FROM notes") == "0")
            try stage.standbyIsBack()
            writing.join()
            #expect(try heard(one, at: stage)[0].map(\.id) == [1, 3])
        }

        @Test func `a commit that waits for a standby holds up the listeners of its own table only`() throws {
            let cluster = try TestCluster.fresh()
            defer { cluster.stop() }
            let stage = try stage(Self.owners, on: cluster)
            defer { stage.stop() }
            let one = try user(1, stage)
            let other = try stage.caller()
            try other.subscribe("realtime:b", [binding("fences")])
            try stage.standbyStaysAway()
            // The first change of a table arrives in the stream with the mark that its policies may have changed.
            let writing = try stage.writeInBackground(Self.insert(1, 1))
            #expect(try eventually { try stage.waitingForStandby() == 1 })
            for fence in 1...20 {
                try stage.run("SET synchronous_commit = local; INSERT INTO fences VALUES (\(fence))")
            }
            #expect(try other.ids(20) == Array(1...20))
            #expect(stage.metrics.parked[.standby].value == 1)
            // A client that joins during the wait must wait, too. So must rows of the table that every client may see.
            let late = try user(1, stage)
            try stage.run("SET synchronous_commit = local;" + Self.insert(2, 1))
            try stage.run("SET synchronous_commit = local; INSERT INTO fences VALUES (21)")
            #expect(try other.ids(1) == [21])
            #expect(try stage.database.value("SELECT count(*) FROM notes") == "1")
            try stage.standbyIsBack()
            writing.join()
            try stage.run("ALTER SYSTEM RESET synchronous_commit")
            let heard = try heard(one, late, at: stage)
            #expect(heard[0].map(\.id) == [1, 2] && heard[1].map(\.id) == [2])
            #expect(stage.metrics.parked[.standby].value >= 2)
        }
    }
}
