import Diagnostics
import Embedded
import System
import TestSupport
import Testing

@testable import Catalog
@testable import Server
@testable import Settings

extension GatewayRows {
    /// Tests of old rows whose column names mean something else now, and of tables that were outside the publication
    /// for a while.
    @Suite(.serialized) struct IdentityTests {
        private static let tables = """
            CREATE TYPE rank AS ENUM ('public', 'private', 'secret');
            CREATE TABLE notes (id int PRIMARY KEY, summary text, details text, v rank, n int);
            ALTER TABLE notes ALTER summary SET STORAGE EXTERNAL, ALTER details SET STORAGE EXTERNAL;
            CREATE TABLE fences (id int PRIMARY KEY);
            GRANT SELECT ON fences TO READER;
            """

        private static let swap =
            "ALTER TABLE notes RENAME summary TO x; ALTER TABLE notes RENAME details TO summary; ALTER TABLE notes RENAME x TO details;"

        private func stage(
            _ more: String, _ settings: [(Setting, String)] = [], on cluster: PrivateCluster? = nil
        ) throws -> GatewayStage {
            try GatewayStage(Self.tables + more, publication: "FOR TABLE notes, fences", settings, on: cluster)
        }

        private func follow(_ stage: GatewayStage, from position: String? = nil) throws -> Caller {
            let caller = try stage.caller()
            let resume = position.map { #","broadcast":{"tidewire":{"resume":"\#($0)"}}"# } ?? ""
            try caller.subscribe(
                "realtime:a", [binding("notes"), binding("fences")], token: stage.token(of: 1), more: resume)
            return caller
        }

        /// Returns the current end of the log.
        private func position(_ stage: GatewayStage) throws -> String {
            let caller = try stage.caller()
            try caller.subscribe(
                "realtime:p", [binding("fences")], token: stage.token(of: 1),
                more: #","broadcast":{"tidewire":{"snapshot":true}}"#)
            let end = try caller.first { $0.payload["position"] is String }
            caller.hangUp()
            return try #require(end.payload["position"] as? String)
        }

        /// Returns all messages about `notes` that the client has received so far.
        private func heard(_ caller: Caller, _ stage: GatewayStage) throws -> [Message] {
            try stage.run("DELETE FROM fences; INSERT INTO fences VALUES (1)")
            var heard: [Message] = []
            while true {
                let change = try caller.change()
                if change.data["table"] as? String != "fences" {
                    heard.append(change)
                } else if change.type == "INSERT" {
                    return heard
                }
            }
        }

        private static func isOfMissing(_ message: Message) -> Bool {
            message.payload["code"] as? String == "ChangesMissing"
        }

        /// True if any message contains the text.
        private func holds(_ messages: [Message], _ text: String) -> Bool {
            messages.contains { "\($0)".contains(text) }
        }

        enum Return: CaseIterable { case live, resume, restart }

        /// Runs steps while a client listens, or before it returns. Returns the client and the messages that it
        /// received.
        private func hear(
            _ way: Return, _ stage: GatewayStage, _ steps: [String], awaitsCatalog: Bool = false
        ) throws -> (Caller, [Message]) {
            let start = try position(stage)
            let live = way == .live ? try follow(stage) : nil
            for step in steps {
                try stage.run(step)
                if awaitsCatalog { try stage.awaitCatalog() }
            }
            if let live { return (live, try heard(live, stage)) }
            try stage.awaitLog()
            try stage.awaitCatalog()
            if way == .restart { try stage.restart {} }
            let caller = try follow(stage, from: start)
            return (caller, try heard(caller, stage))
        }

        // MARK: Columns

        private static let granted =
            "REVOKE ALL ON notes FROM READER; GRANT SELECT (id, summary, n) ON notes TO READER;"
        private static let rows =
            "INSERT INTO notes VALUES (1, repeat('open', 3000), repeat('hidden', 3000), 'public', 1);"

        @Test(arguments: Return.allCases, [false, true])
        func `a column that is not granted is not sent under the name of one that is`(
            way: Return, inOneTransaction: Bool
        ) throws {
            let stage = try stage(Self.granted)
            let steps = [Self.rows, Self.swap, "UPDATE notes SET n = 2;"]
            let (_, heard) = try hear(way, stage, inOneTransaction ? ["BEGIN;" + steps.joined() + "COMMIT"] : steps)
            #expect(heard.map(\.type) == ["INSERT", "UPDATE"])
            #expect(!holds(heard, "hidden"))
            // The grant belongs to the column and not to its name.
            for message in heard where message.record["details"] != nil {
                #expect((message.record["details"] as? String)?.hasPrefix("open") == true)
            }
            if way != .live { #expect(heard.allSatisfy { $0.record["details"] != nil }, "\(heard.count)") }
        }

        @Test(arguments: Return.allCases, [false, true])
        func `a policy judges by the column that it means`(way: Return, inOneTransaction: Bool) throws {
            let stage = try stage(
                """
                GRANT SELECT ON notes TO READER; ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
                CREATE POLICY seen ON notes FOR SELECT USING (summary = 'yes');
                """)
            let steps = [
                "INSERT INTO notes VALUES (1, 'yes', 'no'), (2, 'no', 'yes');", Self.swap,
                "INSERT INTO notes VALUES (3, 'yes', 'no'), (4, 'no', 'yes');",
            ]
            let (_, heard) = try hear(way, stage, inOneTransaction ? ["BEGIN;" + steps.joined() + "COMMIT"] : steps)
            #expect(heard.map(\.id) == [1, 3])
        }

        @Test(arguments: Return.allCases, [false, true])
        func `a column of the same name that came in its place is another one`(
            way: Return, inOneTransaction: Bool
        ) throws {
            let stage = try stage(
                """
                ALTER TABLE notes ADD flag text;
                GRANT SELECT ON notes TO READER; ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
                """)
            let policy = "CREATE POLICY seen ON notes FOR SELECT USING (flag = 'yes');"
            let steps = [
                "INSERT INTO notes (id, flag) VALUES (1, 'yes');",
                "ALTER TABLE notes DROP flag; ALTER TABLE notes ADD flag text;" + policy,
                "INSERT INTO notes (id, flag) VALUES (2, 'yes');",
            ]
            let (caller, heard) = try hear(
                way, stage, inOneTransaction ? ["BEGIN;" + steps.joined() + "COMMIT"] : steps)
            #expect(heard.allSatisfy { $0.id == 2 }, "\(heard)")
            if heard.isEmpty { _ = try caller.first(Self.isOfMissing) }
        }

        @Test(arguments: Return.allCases)
        func `a granted column that is renamed comes under its name of now`(way: Return) throws {
            let stage = try stage(Self.granted)
            let (caller, heard) = try hear(
                way, stage,
                [
                    "INSERT INTO notes VALUES (1, 'open', 'hidden', 'public', 1);",
                    "ALTER TABLE notes RENAME summary TO title",
                    "INSERT INTO notes VALUES (2, 'open', 'hidden', 'public', 1);",
                ])
            #expect(heard.map(\.id) == [1, 2])
            if way != .live {
                #expect(heard.allSatisfy { $0.record["title"] as? String == "open" }, "\(heard)")
            }
            #expect(!caller.takeUnheard().contains(where: Self.isOfMissing))
        }

        // MARK: Labels

        private static let labels = """
            GRANT SELECT ON notes TO READER; ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
            CREATE POLICY seen ON notes FOR SELECT USING (v <> 'private');
            """

        /// Checks rows on a server of its own. While any transaction of the server runs, even of another test, the hub
        /// does not rely on a label that it has just read, and tells the client that.
        @Test(arguments: Return.allCases, [false, true])
        func `a label is the one that it was when the row was written`(way: Return, inOneTransaction: Bool) throws {
            try TestCluster.lend { cluster in
                let stage = try stage(Self.labels, on: cluster)
                let steps = [
                    "INSERT INTO notes (id, v) VALUES (1, 'private'), (2, 'public');",
                    "ALTER TYPE rank RENAME VALUE 'private' TO 'restricted';",
                    "INSERT INTO notes (id, v) VALUES (3, 'restricted'), (4, 'public');",
                ]
                // The stream does not report labels: without event triggers the hub finds a new one by polling.
                let (_, heard) = try hear(
                    way, stage, inOneTransaction ? ["BEGIN;" + steps.joined() + "COMMIT"] : steps, awaitsCatalog: true)
                #expect(heard.map(\.id) == [2, 4])
                stage.stop()
            }
        }

        @Test(arguments: Return.allCases)
        func `labels that changed their texts are not taken for each other`(way: Return) throws {
            let stage = try stage(Self.labels)
            let (_, heard) = try hear(
                way, stage,
                [
                    "BEGIN; INSERT INTO notes (id, v) VALUES (1, 'private'), (2, 'public');"
                        + "ALTER TYPE rank RENAME VALUE 'private' TO 'x'; ALTER TYPE rank RENAME VALUE 'public' TO 'private';"
                        + "ALTER TYPE rank RENAME VALUE 'x' TO 'public'; COMMIT"
                ])
            #expect(!heard.contains { $0.id == 1 }, "\(heard)")
        }

        // MARK: Deletes

        @Test(arguments: [Return.live, .resume])
        func `nobody hears of the delete of a row that a swap hid from him`(way: Return) throws {
            let stage = try stage(
                """
                GRANT SELECT ON notes TO READER; ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
                CREATE POLICY seen ON notes FOR SELECT USING (summary = 'yes');
                """)
            let (_, heard) = try hear(
                way, stage,
                [
                    "INSERT INTO notes VALUES (1, 'yes', 'no'), (2, 'no', 'yes');", Self.swap,
                    "DELETE FROM notes WHERE id = 2;", "DELETE FROM notes WHERE id = 1;",
                ])
            #expect(heard.filter { $0.type == "DELETE" }.map { $0.old["id"] as? Int } == [1])
        }

        // MARK: Publications

        enum Gap: String, CaseIterable {
            case away =
                "ALTER PUBLICATION supabase_realtime DROP TABLE notes; HIDE ALTER PUBLICATION supabase_realtime ADD TABLE notes;"
            case oneTransaction =
                "BEGIN; ALTER PUBLICATION supabase_realtime DROP TABLE notes; HIDE ALTER PUBLICATION supabase_realtime ADD TABLE notes; COMMIT;"
            case options =
                "ALTER PUBLICATION supabase_realtime SET (publish = 'insert'); HIDE ALTER PUBLICATION supabase_realtime SET (publish = 'insert, update, delete, truncate');"
        }

        @Test(arguments: Gap.allCases, Return.allCases)
        func `a value from before a gap in the publication is not taken for the present one`(
            gap: Gap, way: Return
        ) throws {
            let stage = try stage(
                """
                GRANT SELECT ON notes TO READER; ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
                CREATE POLICY seen ON notes FOR SELECT USING (details LIKE 'open%');
                """)
            let hidden = "UPDATE notes SET details = repeat('hidden', 3000);"
            let (caller, heard) = try hear(
                way, stage,
                [Self.rows.replacing("hidden", with: "open")]
                    + gap.rawValue.replacing("HIDE", with: hidden).split(separator: ";").map(String.init)
                    .joinedTransactions
                    + ["UPDATE notes SET n = 2;", "DELETE FROM notes;"])
            #expect(!heard.contains { $0.type == "UPDATE" || $0.type == "DELETE" }, "\(heard.map(\.type))")
            _ = try caller.first(Self.isOfMissing)
        }
    }
}

extension [String] {
    /// Returns the statements; joined into one, if they include a BEGIN and a COMMIT.
    fileprivate var joinedTransactions: [String] {
        contains { $0.contains("BEGIN") } ? [joined(separator: ";")] : filter { $0.contains(" ") }
    }
}
