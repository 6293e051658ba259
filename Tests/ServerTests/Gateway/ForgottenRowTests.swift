import EventLog
import History
import Ingest
import System
import TestSupport
import Testing

@testable import Server

extension Gateways {
    /// Tests of a catch-up over a forgotten row: the hub must not send the row, and must tell the client that something
    /// is missing.
    @Suite(.serialized) struct ForgottenRowTests {
        private static let tables = """
            CREATE TABLE notes (id int PRIMARY KEY, body text);
            CREATE TABLE others (id int PRIMARY KEY, body text);
            GRANT SELECT ON notes, others TO READER;
            """

        private func forget(_ key: String, _ stage: GatewayStage) throws {
            let directory = try DiskDirectory(stage.dataDirectory + "/log")
            let erasure = try EventLogErasure(directory, options: IngestService.indexOptions())
            let log = HistoryLog(directory: directory, masking: .nothing)
            let plan = try Forgetting(
                of: RowName([key]), in: TableName(schema: "public", name: "notes"), log, at: Clock.unixMicroseconds())
            #expect(plan.changes == 1)
            try erasure.perform(plan.patches)
        }

        private func join(
            _ table: String, _ filter: String?, _ position: String, _ stage: GatewayStage
        ) throws -> Caller {
            let caller = try stage.caller()
            try caller.subscribe(
                "realtime:a", [binding(table, filter: filter)], token: stage.token(),
                more: #","broadcast":{"tidewire":{"resume":"\#(position)"}}"#)
            return caller
        }

        private static func isOfMissing(_ message: Message) -> Bool {
            message.payload["code"] as? String == "ChangesMissing"
        }

        @Test func `who comes back to a place before it is told, and who follows another table is not`() throws {
            let stage = try GatewayStage(Self.tables, publication: "FOR TABLE notes, others")
            let early = try stage.caller()
            let wish = #","broadcast":{"tidewire":{"snapshot":true}}"#
            try early.subscribe("realtime:a", [binding("notes"), binding("others")], token: stage.token(), more: wish)
            let end = try early.first { $0.payload["position"] is String }
            let position = try #require(end.payload["position"] as? String)
            try stage.run(
                "INSERT INTO notes VALUES (1, 'planted5ecret'); INSERT INTO notes VALUES (2, 'kept'); INSERT INTO others VALUES (3, '')"
            )
            #expect(try early.ids(3) == [1, 2, 3])
            try stage.awaitLog()
            try stage.restart { try forget("1", stage) }
            let back = try join("notes", nil, position, stage)
            _ = try back.first(Self.isOfMissing)
            #expect(try back.change().id == 2)
            // With a filter on the key, the hub could search the log for this row alone.
            _ = try join("notes", "id=eq.1", position, stage).first(Self.isOfMissing)
            let other = try join("others", nil, position, stage)
            #expect(try other.change().id == 3)
            try other.fence()
            #expect(other.takeUnheard().allSatisfy { !Self.isOfMissing($0) })
            // From here on, delivery is normal.
            try stage.run("INSERT INTO notes VALUES (4, 'new')")
            #expect(try back.change().id == 4)
        }
    }
}
