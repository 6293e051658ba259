import Bytes
import Calling
import Change
import EventLog
import History
import System
import TestSupport
import Testing

@testable import Replaying
@testable import Server
@testable import Settings

extension Gateways {
    /// Tests of a replay into another hub's channels: they must receive the changes that the first hub sent to its
    /// clients.
    @Suite(.serialized) struct ReplayChannelTests {
        private static let tables = """
            CREATE TABLE notes (id int PRIMARY KEY, body text, email text);
            CREATE TABLE "Odd one" (id int PRIMARY KEY, at timestamptz, doc jsonb, ok bool);
            ALTER TABLE "Odd one" REPLICA IDENTITY FULL;
            GRANT SELECT ON notes, "Odd one" TO READER;
            """

        /// Returns the parts of a change that are the same on every hub.
        private static func told(_ message: Message) -> String {
            let data = message.data
            func sorted(_ row: [String: Any]) -> String {
                row.filter { $0.key != "email" }.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }.joined(
                    separator: " ")
            }
            return "\(data["type"] ?? "") \(data["schema"] ?? "").\(data["table"] ?? "") \(sorted(message.record)) "
                + "was \(sorted(message.old)) at \("\(data["commit_timestamp"] ?? "")".prefix(19))"
        }

        private func write(_ stage: GatewayStage, _ random: inout SeededRandom) throws -> Int {
            var count = 0
            for id in 1...30 {
                let table = random.pick(["notes", "\"Odd one\""])
                let values =
                    table == "notes" ? "'b\(id)', 'planted5ecret\(id)'" : "now(), '{\"a\": [\(id), \"x\"]}', true"
                var statements = ["INSERT INTO \(table) VALUES (\(id), \(values))"]
                if id % 3 == 0 { statements.append("UPDATE \(table) SET id = id + 1000 WHERE id = \(id)") }
                if id % 4 == 0 { statements.append("DELETE FROM \(table) WHERE id % 1000 = \(id)") }
                count += statements.count
                try stage.run("BEGIN; \(statements.joined(separator: "; ")); COMMIT")
            }
            return count
        }

        @Test(arguments: seeds(1))
        func `each channel has the same changes in the same order, masked and marked`(_ seed: Seed) throws {
            var random = SeededRandom(seed: seed)
            let source = try GatewayStage(Self.tables, publication: "FOR ALL TABLES")
            let staging = try GatewayStage(Self.tables, publication: "FOR ALL TABLES")
            let listener = try source.caller()
            try listener.subscribe("realtime:all", [binding("notes"), binding("Odd one")])
            let count = try write(source, &random)
            let original = try (0..<count).map { _ in try listener.change() }
            try source.awaitLog()

            let channels = ["replay:public.notes", "replay:public.Odd one"]
            let hearer = try staging.caller()
            for channel in channels { try hearer.join("realtime:" + channel, []) }
            let directory = try DiskDirectory(source.dataDirectory + "/log")
            let log = HistoryLog(directory: directory, masking: Masking())
            var request = ReplayRequest(HistoryQuery())
            request.tag = "again"
            let address = try #require(HubAddress("http://127.0.0.1:\(staging.hub.port)"))
            let target = try HubTarget(HubTarget.Settings(address, token: staging.token()), request)
            var settings = Player.Settings()
            settings.speed = .maximum
            let plan = try ReplayPlan(request, of: log)
            var player = try Player(request, plan, of: log, to: target, settings, Player.Surroundings())
            try player.play()
            #expect(player.report.end == .whole && player.report.changes == UInt64(count))

            let heard = try (0..<count).map { _ in try hearer.first { $0.event == "broadcast" } }
            for channel in channels {
                let name = channel.dropFirst("replay:".count)
                let before = original.filter { "\($0.data["schema"] ?? "").\($0.data["table"] ?? "")" == name }.map(
                    Self.told)
                let inner = heard.filter { $0.topic == "realtime:" + channel }.map(\.inner)
                #expect(!before.isEmpty && inner.map(Self.told) == before)
                for message in inner {
                    let replay = message.payload["replay"] as? [String: Any]
                    #expect(replay?["tag"] as? String == "again" && replay?["offset"] != nil && replay?["lsn"] != nil)
                }
            }
            #expect(!heard.contains { "\($0)".contains("planted5ecret") } && "\(heard)".contains("*** "))
            // The epochs identify each hub.
            let epochs = Set(try log.segments().map { Hex.text($0.header.epoch) })
            let own = try #require(HubAddress("http://127.0.0.1:\(source.hub.port)/realtime/v1/api"))
            let itself = try HubTarget(HubTarget.Settings(own, token: source.token()), request)
            #expect(epochs.contains(try #require(try itself.epoch())))
            #expect(!epochs.contains(try #require(try target.epoch())))
            let stranger = try HubTarget(HubTarget.Settings(address, token: "nobody"), request)
            #expect(try stranger.epoch() == nil)
        }
    }
}

extension Message {
    /// Content of a broadcast, as a message of its own.
    fileprivate var inner: Message {
        Message(topic: topic, payload: payload["payload"] as? [String: Any] ?? [:])
    }
}
