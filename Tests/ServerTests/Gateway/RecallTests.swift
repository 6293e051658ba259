import Diagnostics
import Postgres
import System
import TestSupport
import Testing

@testable import Server
@testable import Settings

extension Gateways {
    /// Tests of deletes that contain only the row's key: the hub must find the clients that may receive them.
    @Suite(.serialized) struct RecallTests {
        private static let identities = ["DEFAULT", "USING INDEX notes_code"]

        private static let tables = """
            CREATE TABLE notes (id int PRIMARY KEY, owner uuid, kind text, body text, code int NOT NULL);
            CREATE UNIQUE INDEX notes_code ON notes (code);
            ALTER TABLE notes REPLICA IDENTITY IDENTITY;
            ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
            CREATE TABLE members (team int, person uuid, PRIMARY KEY (team, person));
            CREATE TABLE fences (id int PRIMARY KEY);
            GRANT SELECT ON notes, members, fences TO READER;
            """

        private static let owners = "CREATE POLICY own ON notes FOR SELECT USING (owner = auth.uid());"

        private let fences = Fences()

        private final class Fences {
            var number = 0
        }

        private func stage(
            _ identity: String, _ policies: String = owners, _ settings: [(Setting, String)] = []
        ) throws -> GatewayStage {
            try GatewayStage(
                Self.tables.replacing("REPLICA IDENTITY IDENTITY", with: "REPLICA IDENTITY " + identity) + policies,
                publication: "FOR TABLE notes, fences", followed: "members", settings)
        }

        private func user(_ number: Int, _ stage: GatewayStage, _ notes: String = binding("notes")) throws -> Caller {
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [notes, binding("fences")], token: stage.token(of: number))
            return caller
        }

        /// Waits until the loop has read everything committed. A client that follows a table proves it.
        private func pass(_ stage: GatewayStage) throws {
            let caller = try stage.caller()
            try caller.subscribe("realtime:p", [binding("fences")], token: stage.token(of: 9))
            _ = try heard(caller, stage)
            caller.hangUp()
        }

        /// Returns all messages about `notes` that the client has received so far.
        private func heard(_ caller: Caller, _ stage: GatewayStage) throws -> [Message] {
            fences.number += 1
            try stage.run("INSERT INTO fences VALUES (\(fences.number))")
            var heard: [Message] = []
            while true {
                let change = try caller.change()
                if change.data["table"] as? String == "fences" {
                    if change.id == fences.number { return heard }
                } else {
                    heard.append(change)
                }
            }
        }

        /// Returns the keys of the received deletes.
        private func gone(_ caller: Caller, _ stage: GatewayStage) throws -> [Int] {
            try heard(caller, stage).filter { $0.type == "DELETE" }.map { change in
                #expect(change.old.count == 1, "\(change.old)")
                let code = change.old["code"] as? Int
                return change.old["id"] as? Int ?? code.map { $0 - 1000 } ?? -1
            }
        }

        private static func insert(_ id: Int, _ owner: Int, _ kind: String = "x") -> String {
            "INSERT INTO notes VALUES (\(id), '\(GatewayStage.user(owner))', '\(kind)', 'b', \(1000 + id));"
        }

        private static func give(_ id: Int, to owner: Int) -> String {
            "UPDATE notes SET owner = '\(GatewayStage.user(owner))' WHERE id = \(id);"
        }

        private static func delete(_ id: Int) -> String { "DELETE FROM notes WHERE id = \(id);" }

        @Test(arguments: identities)
        func `the last owner hears of a delete, however long the row has been there`(identity: String) throws {
            let stage = try stage(identity)
            // No client follows these rows.
            try stage.run(Self.insert(1, 1) + Self.insert(2, 2) + Self.insert(3, 1) + Self.give(3, to: 2))
            try pass(stage)
            let (one, two) = (try user(1, stage), try user(2, stage))
            try stage.run(Self.insert(4, 1) + Self.insert(5, 2) + Self.insert(6, 1) + Self.give(6, to: 2))
            let found = [ProjectMetrics.Recall.memory, .log].map { stage.metrics.recalls[$0].value }
            for id in 1...6 { try stage.run(Self.delete(id)) }
            #expect(try gone(one, stage) == [1, 4])
            #expect(try gone(two, stage) == [2, 3, 5, 6])
            #expect(
                [ProjectMetrics.Recall.memory, .log].map { stage.metrics.recalls[$0].value } == found.map { $0 + 3 })
        }

        @Test(arguments: identities)
        func `what a transaction did to a row before it deletes it counts`(identity: String) throws {
            let stage = try stage(identity)
            try stage.run((1...4).map { Self.insert($0, 1) }.joined())
            try pass(stage)
            let (one, two) = (try user(1, stage), try user(2, stage))
            try stage.run("BEGIN;" + Self.give(1, to: 2) + Self.give(1, to: 1) + Self.delete(1) + "COMMIT")
            try stage.run("BEGIN;" + Self.give(2, to: 1) + Self.give(2, to: 2) + Self.delete(2) + "COMMIT")
            try stage.run(
                "BEGIN;" + Self.delete(3) + Self.insert(3, 2) + Self.delete(3) + Self.insert(3, 1) + Self.delete(3)
                    + "COMMIT")
            try stage.run("UPDATE notes SET id = 40, code = 1040 WHERE id = 4;" + Self.give(40, to: 2))
            try stage.run(Self.insert(4, 1) + Self.delete(40) + Self.delete(4))
            #expect(try gone(one, stage) == [1, 3, 3, 4])
            #expect(try gone(two, stage) == [2, 3, 40])
        }

        @Test(arguments: identities)
        func `of a row that the log does not have nobody hears`(identity: String) throws {
            let stage = try stage(identity, Self.owners + Self.insert(1, 1) + Self.insert(2, 1))
            let one = try user(1, stage)
            try stage.run(Self.insert(3, 1))
            let missing = stage.metrics.recalls[.missing].value
            for id in 1...3 { try stage.run(Self.delete(id)) }
            #expect(try gone(one, stage) == [3])
            #expect(stage.metrics.recalls[.missing].value == missing + 2)
            #expect(one.takeUnheard().contains { $0.said?.contains("last version") == true && !$0.isTrouble })
        }

        @Test(arguments: identities)
        func `what became of rows while nobody listened is not taken for what they were`(identity: String) throws {
            let stage = try stage(identity)
            let before = try user(1, stage)
            try stage.run(Self.insert(1, 1) + Self.insert(2, 1))
            // After this statement, the hub remembers the table's rows for a while, even if clients change.
            try stage.run(Self.delete(2))
            #expect(try gone(before, stage) == [2])
            before.hangUp()
            #expect(eventually { stage.metrics.channels.value == 0 })
            try stage.run(Self.give(1, to: 2))
            try stage.awaitLog()
            try stage.awaitCatalog()
            let (one, two) = (try user(1, stage), try user(2, stage))
            try stage.run(Self.delete(1))
            #expect(try gone(one, stage) == [])
            #expect(try gone(two, stage) == [1])
        }

        @Test(arguments: identities)
        func `after a table was emptied only what came later counts`(identity: String) throws {
            let stage = try stage(identity)
            try stage.run(Self.insert(1, 1) + Self.insert(2, 1) + "TRUNCATE notes;" + Self.insert(1, 2))
            try pass(stage)
            let (one, two) = (try user(1, stage), try user(2, stage))
            try stage.run(Self.delete(1) + Self.insert(3, 1) + "TRUNCATE notes;" + Self.insert(3, 2) + Self.delete(3))
            #expect(try gone(one, stage).isEmpty)
            #expect(try gone(two, stage) == [1, 3])
            // These rows are inserted without a published change, under keys that earlier rows in the log had.
            try stage.run(Self.insert(5, 1) + Self.insert(6, 1) + "TRUNCATE notes;")
            try stage.run("ALTER PUBLICATION supabase_realtime SET (publish = 'update, delete')")
            try stage.run(Self.insert(5, 2) + Self.insert(6, 2))
            try stage.run("ALTER PUBLICATION supabase_realtime SET (publish = 'insert, update, delete, truncate')")
            try stage.run(Self.delete(5))
            #expect(try gone(one, stage).isEmpty)
            #expect(try gone(two, stage).isEmpty)
        }

        @Test(arguments: identities)
        func `a column that came later does not hide the others, and one of another type is not known`(
            identity: String
        ) throws {
            let stage = try stage(
                identity, "CREATE POLICY own ON notes FOR SELECT USING (owner = auth.uid() AND kind <> 'no');")
            try stage.run((1...4).map { Self.insert($0, 1) }.joined())
            try pass(stage)
            let one = try user(1, stage)
            try stage.run(Self.insert(11, 1))
            try stage.run("ALTER TABLE notes ADD COLUMN extra text DEFAULT 'e'")
            try stage.run(Self.delete(1) + Self.delete(11))
            #expect(try gone(one, stage) == [1, 11])
            try stage.run("DROP POLICY own ON notes; ALTER TABLE notes ALTER kind TYPE varchar(10);")
            try stage.run("CREATE POLICY own ON notes FOR SELECT USING (owner = auth.uid() AND kind <> 'no');")
            try stage.run(Self.delete(2))
            #expect(try gone(one, stage).isEmpty)
            try stage.run("DROP POLICY own ON notes; CREATE POLICY own ON notes FOR SELECT USING (owner = auth.uid());")
            try stage.run(Self.delete(3))
            #expect(try gone(one, stage) == [3])
        }

        @Test(arguments: identities)
        func `many deletes at once come in order, to whom they belong`(identity: String) throws {
            let stage = try stage(identity)
            let (first, second) = (GatewayStage.user(1), GatewayStage.user(2))
            try stage.run(
                """
                INSERT INTO notes SELECT g, CASE WHEN g % 2 = 0 THEN '\(second)'::uuid ELSE '\(first)' END, 'x', repeat('b', 300),
                    1000 + g FROM generate_series(1, 10000) g
                """)
            try pass(stage)
            let (one, two) = (try user(1, stage), try user(2, stage))
            let searches = stage.metrics.recallSeconds.snapshot().count
            try stage.run("DELETE FROM notes WHERE id <= 5000")
            for id in 5001...5050 { try stage.run(Self.delete(id)) }
            #expect(try gone(one, stage) == Array(stride(from: 1, to: 5050, by: 2)))
            #expect(try gone(two, stage) == Array(stride(from: 2, to: 5051, by: 2)))
            #expect(stage.metrics.recallSeconds.snapshot().count - searches <= 60)
        }

        @Test(arguments: identities)
        func `what only PostgreSQL can decide is asked about the row as it was`(identity: String) throws {
            let stage = try stage(
                identity,
                """
                CREATE FUNCTION sees(kind text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
                BEGIN RETURN kind = auth.jwt() ->> 'sees'; END $$;
                CREATE POLICY asked ON notes FOR SELECT USING (kind = 'open' OR sees(kind));
                """)
            try stage.run(Self.insert(1, 9, "open") + Self.insert(2, 9, "one") + Self.insert(3, 9, "no"))
            try pass(stage)
            let one = try stage.caller()
            try one.subscribe(
                "realtime:a", [binding("notes"), binding("fences")], token: stage.token(of: 1, #","sees":"one""#))
            let two = try user(2, stage)
            try stage.run(Self.insert(4, 9, "one") + Self.insert(5, 9, "no") + Self.insert(6, 9, "open"))
            try stage.run("DELETE FROM notes")
            #expect(try gone(one, stage) == [1, 2, 4, 6])
            #expect(try gone(two, stage) == [1, 6])
        }

        @Test(arguments: identities)
        func `members hear of deletes of what they share`(identity: String) throws {
            let stage = try stage(
                identity,
                """
                ALTER TABLE notes ADD COLUMN team int;
                CREATE POLICY mates ON notes FOR SELECT
                    USING (team IN (SELECT m.team FROM members m WHERE m.person = auth.uid()));
                INSERT INTO members VALUES (1, '\(GatewayStage.user(1))'), (2, '\(GatewayStage.user(2))');
                """)
            func note(_ id: Int, _ team: Int) -> String {
                "INSERT INTO notes (id, team, code) VALUES (\(id), \(team), \(1000 + id));"
            }
            try stage.run(note(1, 1) + note(2, 2))
            try pass(stage)
            let (one, two) = (try user(1, stage), try user(2, stage))
            try stage.run(note(3, 1) + note(4, 2))
            try stage.run("DELETE FROM notes")
            #expect(try gone(one, stage) == [1, 3])
            #expect(try gone(two, stage) == [2, 4])
        }

        @Test func `those whom no policy restricts hear of deletes as ever, and once`() throws {
            let stage = try stage(
                "DEFAULT",
                Self.owners + "CREATE POLICY all_of_them ON notes FOR SELECT TO OUTSIDER USING (true);"
                    + "GRANT SELECT ON notes, fences TO OUTSIDER;")
            try stage.run(Self.insert(1, 1) + Self.insert(2, 2))
            try pass(stage)
            let one = try stage.caller()
            try one.subscribe(
                "realtime:a", [binding("notes"), binding("notes", "DELETE"), binding("fences")],
                token: stage.token(of: 1))
            let free = try stage.caller()
            try free.subscribe(
                "realtime:a", [binding("notes"), binding("fences")], token: stage.token(stage.outsider))
            try stage.run(Self.insert(3, 1) + "DELETE FROM notes")
            #expect(try gone(one, stage) == [1, 3])
            #expect(try gone(free, stage) == [1, 2, 3])
        }

        @Test func `a filter looks at the row as it was where a policy does`() throws {
            let stage = try stage("DEFAULT")
            try stage.run(Self.insert(1, 1, "a") + Self.insert(2, 1, "b") + Self.insert(3, 2, "a"))
            try pass(stage)
            let one = try user(1, stage, binding("notes", filter: "kind=eq.a"))
            try stage.run("DELETE FROM notes")
            #expect(try gone(one, stage) == [1])
        }

        @Test func `large values that an update left alone are known from before`() throws {
            let stage = try stage(
                "DEFAULT",
                "ALTER TABLE notes ALTER body SET STORAGE EXTERNAL;"
                    + "CREATE POLICY own ON notes FOR SELECT USING (owner = auth.uid() AND body LIKE 'x%');")
            func large(_ id: Int) -> String {
                "INSERT INTO notes VALUES (\(id), '\(GatewayStage.user(1))', 'k', repeat('x', 9000), \(id));"
                    + "UPDATE notes SET kind = 'l' WHERE id = \(id);"
            }
            try stage.run(large(1))
            try pass(stage)
            let one = try user(1, stage)
            try stage.run(large(2))
            try stage.run("DELETE FROM notes")
            #expect(try gone(one, stage) == [1, 2])
        }
    }
}
