import Diagnostics
import Postgres
import System
import TestSupport
import Testing

@testable import Server

extension Gateways {
    /// Who hears of which rows where policies say who may see them.
    @Suite(.serialized) struct RowSecurityTests {
        private static let tables = """
            CREATE TABLE notes (id int PRIMARY KEY, owner uuid, kind text, body text);
            ALTER TABLE notes REPLICA IDENTITY FULL;
            ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
            CREATE TABLE members (team int, person uuid, role text DEFAULT 'reader', PRIMARY KEY (team, person));
            ALTER TABLE members REPLICA IDENTITY FULL;
            CREATE TABLE fences (id int PRIMARY KEY);
            GRANT SELECT ON notes, members, fences TO READER;
            """

        private func stage(_ policies: String, _ settings: [(Setting, String)] = []) throws -> GatewayStage {
            try GatewayStage(Self.tables + policies, publication: "FOR TABLE notes, fences", settings)
        }

        /// A client of the user who follows the notes and the fences.
        private func user(
            _ number: Int, _ stage: GatewayStage, _ notes: [String] = [binding("notes")], more: String = ""
        ) throws -> Caller {
            let caller = try stage.caller()
            try caller.subscribe(
                "realtime:a", notes + [binding("fences")], token: stage.token(of: number), more: more)
            return caller
        }

        /// All that a client heard of the notes up to now.
        private func heard(_ caller: Caller, _ stage: GatewayStage) throws -> [Message] {
            fence += 1
            try stage.run("INSERT INTO fences VALUES (\(fence))")
            var heard: [Message] = []
            while true {
                let change = try caller.change()
                if change.data["table"] as? String == "fences" {
                    if change.id == fence { return heard }
                } else {
                    heard.append(change)
                }
            }
        }

        private static func insert(_ id: Int, _ owner: Int, _ kind: String = "x", _ body: String = "b") -> String {
            "INSERT INTO notes VALUES (\(id), '\(GatewayStage.user(owner))', '\(kind)', '\(body)');"
        }

        private static let owners = "CREATE POLICY own ON notes FOR SELECT USING (owner = auth.uid());"

        @Test func `each hears of its own rows, and of those only`() throws {
            let stage = try stage(Self.owners)
            let (one, two) = (try user(1, stage), try user(2, stage))
            try stage.run(Self.insert(1, 1) + Self.insert(2, 2) + Self.insert(3, 1))
            #expect(try heard(one, stage).map(\.id) == [1, 3])
            #expect(try heard(two, stage).map(\.id) == [2])
            try stage.run("DELETE FROM notes WHERE id < 3")
            let gone = try heard(one, stage)
            #expect(gone.map(\.type) == ["DELETE"] && gone[0].old["id"] as? Int == 1 && gone[0].old.count == 4)
            #expect(try heard(two, stage).map { $0.old["id"] as? Int } == [2])
        }

        @Test func `a row that changes hands is shown to whom it belongs, and its past to nobody else`() throws {
            let stage = try stage(Self.owners)
            let (one, two) = (try user(1, stage), try user(2, stage, more: #","tidewire":{"moves":true}"#))
            let moving = try stage.caller()
            try moving.subscribe(
                "realtime:m", [binding("notes")], token: stage.token(of: 1), more: #","tidewire":{"moves":true}"#)
            try stage.run(Self.insert(1, 1, "x", "a secret of the first"))
            try stage.run("UPDATE notes SET owner = '\(GatewayStage.user(2))', body = 'another' WHERE id = 1")
            #expect(try heard(one, stage).map(\.type) == ["INSERT"])
            let arrived = try heard(two, stage)
            #expect(arrived.map(\.type) == ["UPDATE"])
            #expect(arrived[0].old.count == 1 && arrived[0].old["id"] as? Int == 1)
            #expect(arrived[0].record["body"] as? String == "another")
            #expect(try moving.change().type == "INSERT")
            let left = try moving.change()
            #expect(left.type == "DELETE" && left.old["body"] as? String == "a secret of the first")
            #expect((left.data["tidewire"] as? [String: Any])?["moved"] as? String == "out")
            try stage.run("UPDATE notes SET body = 'still the second\u{2019}s'")
            #expect(try heard(two, stage).map { $0.old.count } == [4])
            #expect(try heard(one, stage).isEmpty)
        }

        private let fenceBox = Fence()
        private var fence: Int {
            get { fenceBox.number }
            nonmutating set { fenceBox.number = newValue }
        }

        private final class Fence {
            var number = 0
        }
    }
}
