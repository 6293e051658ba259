import Diagnostics
import Postgres
import System
import TestSupport
import Testing

@testable import Server

extension GatewayRows {
    /// Tests of values that a change does not contain. The hub must not treat them as NULL: it finds the value, or
    /// tells the client that it is missing.
    @Suite(.serialized) struct AbsentValueTests {
        private static let tables = """
            CREATE TABLE notes (id int PRIMARY KEY, n int, kind text, body text);
            ALTER TABLE notes ALTER body SET STORAGE EXTERNAL;
            CREATE TABLE fences (id int PRIMARY KEY);
            GRANT SELECT ON notes, fences TO READER;
            """

        private static let guarded = "ALTER TABLE notes ENABLE ROW LEVEL SECURITY;"

        /// Returns a policy with the condition. If `isAsked` is true, the hub must ask PostgreSQL about it; otherwise
        /// it decides itself.
        private static func policy(_ condition: String, isAsked: Bool) -> String {
            let seen = """
                CREATE FUNCTION sees(boolean) RETURNS boolean LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN $1; END $$;
                """
            return guarded + (isAsked ? seen : "")
                + "CREATE POLICY p ON notes FOR SELECT USING (\(isAsked ? "sees(\(condition))" : condition));"
        }

        private let fences = Fences()

        private final class Fences {
            var number = 0
        }

        private func stage(_ more: String = "") throws -> GatewayStage {
            try GatewayStage(Self.tables + more, publication: "FOR TABLE notes, fences")
        }

        private func follower(_ stage: GatewayStage, _ filter: String? = nil, more: String = "") throws -> Caller {
            let caller = try stage.caller()
            try caller.subscribe(
                "realtime:a", [binding("notes", filter: filter), binding("fences")], more: more)
            return caller
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

        /// Waits until the loop has read everything committed. A client that follows a table proves it.
        private func pass(_ stage: GatewayStage) throws {
            let caller = try stage.caller()
            try caller.subscribe("realtime:p", [binding("fences")])
            _ = try heard(caller, stage)
            caller.hangUp()
        }

        private func isTold(_ caller: Caller) throws -> Bool {
            // The loop sends the report after the changes of the same turn.
            try caller.fence()
            return caller.takeUnheard().contains { $0.isTrouble && $0.said?.contains("changes may be missing") == true }
        }

        // MARK: Columns of another type

        @Test(arguments: ["n=gt.3", "n=eq.5", "n=in.(5,7)", "n=not.eq.1", "and=(n.gte.5,kind.eq.k)"])
        func `rows from before a column got another type meet filters on it`(filter: String) throws {
            let stage = try stage()
            let one = try follower(stage, filter)
            try stage.run(
                "BEGIN; INSERT INTO notes VALUES (1, 5, 'k'), (2, 1, 'k'), (3, NULL, 'k'); "
                    + "ALTER TABLE notes ALTER n TYPE bigint; INSERT INTO notes VALUES (4, 5, 'k'), (5, 1, 'k'); COMMIT"
            )
            let heard = try heard(one, stage)
            #expect(heard.map(\.id) == [1, 4])
            #expect(heard.map { $0.record["n"] as? Int } == [5, 5])
            #expect(try !isTold(one))
        }

        @Test(arguments: [false, true])
        func `rows from before a column got another type meet policies on it`(isAsked: Bool) throws {
            let stage = try stage(Self.policy("n > 3", isAsked: isAsked))
            let one = try follower(stage)
            try stage.run(
                "BEGIN; INSERT INTO notes VALUES (1, 5), (2, 1); DROP POLICY p ON notes; "
                    + "ALTER TABLE notes ALTER n TYPE numeric; CREATE POLICY p ON notes FOR SELECT USING ("
                    + (isAsked ? "sees(n > 3)" : "n > 3") + "); INSERT INTO notes VALUES (3, 5), (4, 1); COMMIT")
            #expect(try heard(one, stage).map(\.id) == [1, 3])
            #expect(try !isTold(one))
        }

        @Test func `both images of an update are of the type that the column has now`() throws {
            let stage = try stage("ALTER TABLE notes REPLICA IDENTITY FULL;")
            let one = try follower(stage, "n=eq.5", more: #","tidewire":{"moves":true}"#)
            try stage.run(
                "BEGIN; INSERT INTO notes VALUES (1, 5), (2, 4); UPDATE notes SET n = 9 - n; DELETE FROM notes; "
                    + "ALTER TABLE notes ALTER n TYPE text; INSERT INTO notes VALUES (3, '5'); COMMIT")
            let heard = try heard(one, stage)
            #expect(heard.map(\.type) == ["INSERT", "DELETE", "UPDATE", "DELETE", "INSERT"])
            #expect(heard.map { ($0.id ?? $0.old["id"] as? Int) } == [1, 1, 2, 2, 3])
            #expect(heard[0].record["n"] as? String == "5")
            #expect(heard[2].old["n"] as? String == "4")
        }

        @Test func `where nobody can say what a value is now the client is told`() throws {
            let stage = try stage("CREATE TYPE mood AS ENUM ('a', 'b'); ALTER TABLE notes ADD m mood;")
            let one = try follower(stage, "m=eq.a")
            try stage.run(
                "BEGIN; INSERT INTO notes (id, m) VALUES (1, 'a'); ALTER TABLE notes ALTER m TYPE text; "
                    + "INSERT INTO notes (id, m) VALUES (2, 'a'); COMMIT")
            #expect(try heard(one, stage).map(\.id) == [2])
            #expect(try isTold(one))
        }

        // MARK: Rows that move out of view

        /// Checks that a client that asked for rows moving out of its view receives all of these moves. This must hold
        /// for every replica identity, and for rows that are older than the client.
        @Test(arguments: seeds(2), [nil, false, true])
        func `rows that updates take away are told under every identity`(seed: Seed, isAsked: Bool?) throws {
            let policy = isAsked.map { Self.policy("n > 3", isAsked: $0) }
            for identity in ["DEFAULT", "USING INDEX notes_n_id", "FULL"] {
                var random = SeededRandom(seed: seed)
                let stage = try stage(
                    (policy ?? "")
                        + "ALTER TABLE notes ALTER n SET NOT NULL; CREATE UNIQUE INDEX notes_n_id ON notes (id);"
                        + "ALTER TABLE notes REPLICA IDENTITY \(identity);")
                var rows = Rows()
                for _ in 0..<10 { try stage.run(rows.change(&random)) }
                try pass(stage)
                rows.told = []
                let one = try follower(stage, policy == nil ? "n=gt.3" : nil, more: #","tidewire":{"moves":true}"#)
                try one.fence()
                let warnings = one.takeUnheard().compactMap(\.said)
                #expect(warnings.contains { $0.contains("takes out of view") } == (identity != "FULL"))
                for _ in 0..<8 {
                    let changes = (0..<4).map { _ in rows.change(&random) }
                    let together = changes.joined(separator: "; ")
                    let isElsewise = identity == "FULL" && Bool.random(using: &random)
                    try stage.run(isElsewise ? Self.whileKeysAreKept(together) : "BEGIN; \(together); COMMIT")
                }
                let heard = try heard(one, stage)
                let told = heard.map { "\($0.type ?? "") \($0.id ?? $0.old["id"] as? Int ?? 0)" }
                #expect(told == rows.told, "\(identity)")
                #expect(
                    heard.count { $0.type == "DELETE" && $0.data["tidewire"] != nil } == rows.movedCount, "\(identity)")
                #expect(try !isTold(one), "\(identity)")
            }
        }

        /// Returns a transaction during which changes contain only the keys of old rows. Before and after it, they
        /// contain whole old rows.
        private static func whileKeysAreKept(_ statement: String) -> String {
            "BEGIN; ALTER TABLE notes REPLICA IDENTITY DEFAULT; \(statement); "
                + "ALTER TABLE notes REPLICA IDENTITY FULL; COMMIT"
        }

        @Test(arguments: [nil, false, true] as [Bool?])
        func `what happens to rows while the identity is another is known from the log`(isAsked: Bool?) throws {
            let policy = isAsked.map { Self.policy("n > 3", isAsked: $0) } ?? ""
            let stage = try stage(policy + "ALTER TABLE notes REPLICA IDENTITY FULL;")
            try stage.run("INSERT INTO notes VALUES (1, 5), (2, 5), (3, 1)")
            // Clients that join after this line do not receive the notice.
            try pass(stage)
            let one = try follower(stage, isAsked == nil ? "n=gt.3" : nil, more: #","tidewire":{"moves":true}"#)
            try stage.run(
                Self.whileKeysAreKept(
                    "UPDATE notes SET n = 1 WHERE id IN (1, 3); DELETE FROM notes WHERE id IN (2, 3)"))
            let heard = try heard(one, stage)
            #expect(heard.map { "\($0.type ?? "") \($0.old["id"] as? Int ?? 0)" } == ["DELETE 1", "DELETE 2"])
            #expect(heard.map { $0.data["tidewire"] != nil } == [true, false])
            #expect(try !isTold(one))
        }

        @Test(arguments: [nil, false, true] as [Bool?], ["UPDATE notes SET n = 1", "DELETE FROM notes"])
        func `rows that the log does not know do not go in silence while the identity is another`(
            isAsked: Bool?, statement: String
        ) throws {
            let policy = isAsked.map { Self.policy("n > 3", isAsked: $0) } ?? ""
            // This row is older than the log.
            let stage = try stage(
                policy + "ALTER TABLE notes REPLICA IDENTITY FULL; INSERT INTO notes VALUES (1, 5);")
            let one = try follower(stage, isAsked == nil ? "n=gt.3" : nil, more: #","tidewire":{"moves":true}"#)
            try stage.run(Self.whileKeysAreKept(statement))
            #expect(try heard(one, stage).isEmpty)
            #expect(try isTold(one))
        }

        /// Rows of the table, with the messages for a client that sees rows with n > 3.
        private struct Rows {
            private var values: [Int: Int] = [:]
            private var last = 0
            var told: [String] = [] { didSet { if told.isEmpty { movedCount = 0 } } }
            private(set) var movedCount = 0

            mutating func change(_ random: inout SeededRandom) -> String {
                let value = Int.random(in: 0..<8, using: &random)
                guard let (id, former) = values.sorted(by: { $0.key < $1.key }).randomElement(using: &random),
                    Int.random(in: 0..<4, using: &random) > 0
                else {
                    last += 1
                    values[last] = value
                    if value > 3 { told.append("INSERT \(last)") }
                    return "INSERT INTO notes VALUES (\(last), \(value), 'k', repeat('x', \(value % 2 * 9000)))"
                }
                switch Int.random(in: 0..<6, using: &random) {
                case 0:
                    values[id] = nil
                    if former > 3 { told.append("DELETE \(id)") }
                    return "DELETE FROM notes WHERE id = \(id)"
                case 1:
                    last += 1
                    values[id] = nil
                    note(id, former, last, value)
                    return "UPDATE notes SET id = \(last), n = \(value) WHERE id = \(id)"
                case 2:
                    note(id, former, id, former)
                    return "UPDATE notes SET kind = 'l' WHERE id = \(id)"
                default:
                    note(id, former, id, value)
                    return "UPDATE notes SET n = \(value) WHERE id = \(id)"
                }
            }

            private mutating func note(_ oldID: Int, _ former: Int, _ id: Int, _ value: Int) {
                values[id] = value
                if value > 3 { return told.append("UPDATE \(id)") }
                guard former > 3 else { return }
                movedCount += 1
                told.append("DELETE \(oldID)")
            }
        }

        // MARK: Large values that did not change

        private static func large(_ id: Int) -> String {
            "INSERT INTO notes VALUES (\(id), 1, 'k', repeat('x', 9000));"
        }

        @Test(arguments: ["body=like.x%", "body=not.is.null", "body=isdistinct.y", "body=eq.LARGE", "body=gt.w", nil])
        func `a large value that an update left alone is taken from the log`(filter: String?) throws {
            let stage = try stage()
            try stage.run(Self.large(1) + Self.large(2))
            try pass(stage)
            let filter = filter?.replacing("LARGE", with: String(repeating: "x", count: 9000))
            let one = try follower(stage, filter)
            try stage.run(
                "UPDATE notes SET n = 2 WHERE id = 1; UPDATE notes SET n = 3 WHERE id = 1;"
                    + "BEGIN; UPDATE notes SET id = 3 WHERE id = 1; UPDATE notes SET n = 4 WHERE id = 3;"
                    + "UPDATE notes SET n = 9 WHERE id = 2; COMMIT")
            let heard = try heard(one, stage)
            #expect(heard.map { $0.record["n"] as? Int } == [2, 3, 3, 4, 9])
            #expect(heard.allSatisfy { ($0.record["body"] as? String)?.count == 9000 })
            #expect(try !isTold(one))
        }

        @Test func `it is found behind many updates and segments`() throws {
            let stage = try stage()
            try stage.run(Self.large(1))
            for number in 0..<3 {
                try stage.run(
                    "INSERT INTO notes SELECT g, 0, 'k', repeat('y', 9000) "
                        + "FROM generate_series(\(1000 + number * 150), \(1149 + number * 150)) g")
                try stage.run("UPDATE notes SET n = \(10 + number) WHERE id = 1")
            }
            try pass(stage)
            let one = try follower(stage, "body=like.xx%")
            try stage.run("UPDATE notes SET n = 2 WHERE id = 1")
            let heard = try heard(one, stage)
            #expect(heard.map { ($0.record["body"] as? String)?.count } == [9000])
        }

        /// Checks an earlier row with the same key: the hub must not use its values for the present row.
        @Test func `what another row had under the same key is nothing to this one`() throws {
            let stage = try stage(
                "INSERT INTO notes VALUES (7, 1, 'k', repeat('z', 9000));")
            try stage.run(Self.large(1) + "DELETE FROM notes WHERE id = 1; UPDATE notes SET id = 1 WHERE id = 7;")
            try pass(stage)
            let one = try follower(stage, "body=like.x%")
            try stage.run("UPDATE notes SET n = 2 WHERE id = 1")
            #expect(try heard(one, stage).isEmpty)
            #expect(try isTold(one))
        }

        @Test(arguments: [false, true])
        func `policies see large values that an update left alone`(isAsked: Bool) throws {
            let stage = try stage(Self.policy("body LIKE 'x%'", isAsked: isAsked))
            try stage.run(Self.large(1) + "INSERT INTO notes VALUES (2, 1, 'k', repeat('y', 9000));")
            try pass(stage)
            let one = try follower(stage)
            try stage.run("UPDATE notes SET n = id + 1; UPDATE notes SET n = n + 1;")
            let heard = try heard(one, stage)
            #expect(heard.map { $0.record["n"] as? Int } == [2, 3])
            #expect(heard.allSatisfy { ($0.record["body"] as? String)?.count == 9000 })
            #expect(try !isTold(one))
        }

        @Test(arguments: ["body=like.x%", "body=not.is.null", "body=isdistinct.y"])
        func `where the log does not have it the client is told`(filter: String) throws {
            let stage = try stage(Self.large(1))
            let (one, all) = (try follower(stage, filter), try follower(stage))
            let missing = stage.metrics.recalls[.missing].value
            try stage.run("UPDATE notes SET n = 2 WHERE id = 1; INSERT INTO notes VALUES (2, 1, 'k', 'xy')")
            #expect(try heard(one, stage).map(\.id) == [2])
            #expect(try isTold(one))
            let whole = try heard(all, stage)
            #expect(whole.map(\.id) == [1, 2] && whole[0].record["body"] == nil)
            try all.fence()
            #expect(
                all.takeUnheard().contains { $0.status == "ok" && $0.said?.contains("missing from its record") == true }
            )
            #expect(stage.metrics.recalls[.missing].value > missing)
        }

        // MARK: Deletes

        @Test func `a filter is held against the row that a delete only names`() throws {
            let stage = try stage("INSERT INTO notes VALUES (100, 1, 'a');")
            try stage.run("INSERT INTO notes VALUES (1, 1, 'a'), (2, 1, 'b'), (3, 1, NULL)")
            try pass(stage)
            let one = try follower(stage, "kind=eq.a")
            #expect(one.takeUnheard().isEmpty)
            try stage.run("INSERT INTO notes VALUES (4, 1, 'a'); UPDATE notes SET kind = 'a' WHERE id = 2")
            let missed = stage.metrics.drops[.absentValue].value
            try stage.run("DELETE FROM notes WHERE id < 100; DELETE FROM notes")
            let heard = try heard(one, stage)
            #expect(heard.filter { $0.type == "DELETE" }.map { $0.old["id"] as? Int } == [1, 2, 4])
            #expect(heard.filter { $0.type == "DELETE" }.allSatisfy { $0.old.count == 1 })
            #expect(stage.metrics.drops[.absentValue].value == missed + 1)
            let warnings = one.takeUnheard()
            #expect(warnings.contains { $0.said?.contains("REPLICA IDENTITY FULL") == true && !$0.isTrouble })
            #expect(warnings.allSatisfy { !$0.isTrouble })
        }

        /// Checks deletes of rows whose large value the log does not have, because the value is older than the log. The
        /// notice at the subscription only states that the log must have the row.
        @Test(arguments: [false, true])
        func `a delete is told of if the log's row lacks a value`(hasPolicy: Bool) throws {
            let stage = try stage(Self.large(1) + (hasPolicy ? Self.policy("body LIKE 'x%'", isAsked: false) : ""))
            try stage.run("UPDATE notes SET n = 2")
            try pass(stage)
            let one = try follower(stage, hasPolicy ? nil : "body=like.x%")
            #expect(one.takeUnheard().isEmpty)
            try stage.run("DELETE FROM notes")
            #expect(try heard(one, stage).isEmpty)
            try one.fence()
            let warnings = one.takeUnheard()
            #expect(warnings.contains { $0.said?.contains("does not have whole or for certain") == true })
            #expect(warnings.allSatisfy { !$0.isTrouble })
        }

        /// Checks that a client needs no knowledge of the rows in the log that the hub ignores. Within a transaction no
        /// change is lost, although the hub cannot see that.
        @Test(arguments: [("kind=eq.a", false), ("kind=eq.a", true), (nil, true)])
        func `deletes of rows from before the table left the publication are told of`(
            filter: String?, isGuarded: Bool
        ) throws {
            let stage = try stage(isGuarded ? Self.policy("kind = 'a'", isAsked: false) : "")
            let one = try follower(stage, filter)
            try stage.run(
                "INSERT INTO notes VALUES (1, 1, 'a'), (2, 1, 'a'), (3, 1, 'a'); DELETE FROM notes WHERE id = 1")
            let deleted = try heard(one, stage).filter { $0.type == "DELETE" }
            #expect(deleted.map { $0.old["id"] as? Int } == [1])
            #expect(try !isTold(one))
            try stage.run(
                "BEGIN; ALTER PUBLICATION supabase_realtime DROP TABLE notes; "
                    + "ALTER PUBLICATION supabase_realtime ADD TABLE notes; COMMIT")
            #expect(try eventually { try isTold(one) }, "of the time without the table")
            try stage.run("DELETE FROM notes WHERE id = 2")
            #expect(try heard(one, stage).isEmpty)
            // The hub reports a loss again only after a while. A client that joined again at each report would go on
            // doing so as long as there are such rows, so the report is no error.
            #expect(
                try eventually {
                    try one.fence()
                    return one.takeUnheard().contains {
                        $0.status == "ok" && $0.said?.contains("A row was deleted") == true
                    }
                })
            // The hub uses rows again once no transaction is running that may have begun before the table was published
            // again.
            var id = 3
            #expect(
                try eventually {
                    id += 1
                    try stage.run("INSERT INTO notes VALUES (\(id), 1, 'a')")
                    try stage.run("DELETE FROM notes WHERE id = \(id)")
                    return try heard(one, stage).contains { $0.type == "DELETE" && $0.old["id"] as? Int == id }
                })
        }

        @Test func `nobody is warned of deletes that say all that a filter looks at`() throws {
            let stage = try stage()
            let one = try follower(stage, "id=gt.3")
            let inserts = try stage.caller()
            try inserts.subscribe("realtime:i", [binding("notes", "INSERT", filter: "kind=eq.a")])
            try stage.run("INSERT INTO notes VALUES (4, 1, 'a')")
            #expect(try one.change().id == 4 && inserts.change().id == 4)
            #expect((one.takeUnheard() + inserts.takeUnheard()).allSatisfy { $0.said?.contains("REPLICA") != true })
        }

        // MARK: Domains

        @Test(arguments: [false, true])
        func `columns of domains are columns like others`(isAsked: Bool) throws {
            let stage = try stage(
                """
                CREATE DOMAIN word AS text CHECK (VALUE <> 'never');
                CREATE DOMAIN amount AS numeric(8, 2) NOT NULL DEFAULT 0;
                CREATE DOMAIN person AS uuid;
                CREATE DOMAIN words AS text[];
                CREATE DOMAIN twice AS word;
                ALTER TABLE notes ADD w word, ADD a amount, ADD p person, ADD ws words, ADD t twice;
                """ + Self.policy("w <> 'hidden' AND a >= 1 AND t = 't' AND 'x' = ANY (ws)", isAsked: isAsked))
            let user = GatewayStage.user(1)
            let filters = [
                "w=eq.x", "w=like.x%", "a=gt.1", "a=eq.1.5", "p=eq.\(user)", "p=in.(\(user))", "ws=cs.{x}", "t=neq.x",
            ]
            let callers = try filters.map { try follower(stage, $0) }
            try stage.run(
                "INSERT INTO notes (id, w, a, p, ws, t) VALUES (1, 'x', 1.5, '\(user)', '{x,y}', 't'), "
                    + "(2, 'hidden', 1.5, '\(user)', '{x,y}', 't'), (3, 'y', 1, NULL, '{y}', 't')")
            for (caller, filter) in zip(callers, filters) {
                #expect(try heard(caller, stage).map(\.id) == [1], "\(filter)")
            }
        }
    }
}
