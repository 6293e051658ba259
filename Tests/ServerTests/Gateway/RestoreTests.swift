import EventLog
import Foundation
import System
import TestSupport
import Testing

@testable import Server

extension Gateways {
    /// Tests of backup and restore, and of their effects on clients. They run the commands of docs/backup.md with the
    /// built program.
    @Suite(.serialized) struct RestoreTests {
        private static let tables =
            "CREATE TABLE notes (id int PRIMARY KEY, body text); GRANT SELECT ON notes TO READER"

        private static var program: String {
            let tests = URL(fileURLWithPath: CommandLine.arguments[0]).resolvingSymlinksInPath()
            return tests.deletingLastPathComponent().appendingPathComponent("tidewire").path
        }

        enum Way: String, CaseIterable {
            case copy
            case export
        }

        /// Runs a shell line with `TIDEWIRE`, `DATA` and `BACKUP` replaced by real paths.
        private func shell(_ words: String, _ stage: GatewayStage, _ backup: String) throws {
            let line = words.replacing("TIDEWIRE", with: "'\(Self.program)'")
                .replacing("DATA", with: stage.dataDirectory).replacing("BACKUP", with: backup)
            let output = backup + "/said"
            let end = try ChildProcess(["/bin/bash", "-o", "pipefail", "-c", line], output: output).wait()
            let said = try String(contentsOfFile: output, encoding: .utf8)
            try #require(end == .exited(0), "\(words): \(said)")
        }

        private func save(_ way: Way, _ stage: GatewayStage, _ backup: String) throws {
            switch way {
            case .copy:
                try shell("cp DATA/log/lineage DATA/log/*.segment BACKUP/", stage, backup)
                try shell("TIDEWIRE log verify --repair --log BACKUP", stage, backup)
            case .export:
                try shell(
                    "TIDEWIRE log export --unmask '*' --log DATA/log | gzip > BACKUP/log.ndjson.gz", stage, backup)
            }
        }

        private func putBack(_ way: Way, _ stage: GatewayStage, _ backup: String) throws {
            try shell("rm -r DATA/log", stage, backup)
            switch way {
            case .copy:
                try shell("mkdir -m 700 DATA/log && cp BACKUP/lineage BACKUP/*.segment DATA/log/", stage, backup)
            case .export:
                try shell("gunzip < BACKUP/log.ndjson.gz | TIDEWIRE log import - --data-dir DATA", stage, backup)
            }
        }

        private func position(_ caller: Caller, _ stage: GatewayStage) throws -> String {
            let wish = #","broadcast":{"tidewire":{"snapshot":true}}"#
            try caller.subscribe("realtime:a", [binding("notes")], token: stage.token(), more: wish)
            return try #require(try caller.first { $0.payload["position"] is String }.payload["position"] as? String)
        }

        private func back(at position: String, _ stage: GatewayStage) throws -> Caller {
            let caller = try stage.caller()
            try caller.subscribe(
                "realtime:a", [binding("notes")], token: stage.token(),
                more: #","broadcast":{"tidewire":{"resume":"\#(position)"}}"#)
            return caller
        }

        private static func isOfMissing(_ message: Message) -> Bool {
            message.payload["code"] as? String == "ChangesMissing"
        }

        @Test(arguments: Way.allCases)
        func `a log that was saved at rest goes on where it was, and who comes back stays`(way: Way) throws {
            let stage = try GatewayStage(Self.tables, publication: "FOR TABLE notes")
            let backup = TemporaryDirectory.make("backup")
            let position = try position(stage.caller(), stage)
            try stage.run("INSERT INTO notes VALUES (1, 'a')")
            try stage.awaitLog()
            try stage.restart {
                try save(way, stage, backup)
                try putBack(way, stage, backup)
                try stage.run("INSERT INTO notes VALUES (2, 'while it is away')")
            }
            let caller = try back(at: position, stage)
            #expect(try caller.ids(2) == [1, 2])
            try stage.run("INSERT INTO notes VALUES (3, 'c')")
            #expect(try caller.change().id == 3)
            #expect(caller.takeUnheard().allSatisfy { !Self.isOfMissing($0) })
        }

        @Test(arguments: Way.allCases)
        func `a log that was saved while it was written has a gap where it lacks something, and clients are told`(
            way: Way
        ) throws {
            let stage = try GatewayStage(Self.tables, publication: "FOR TABLE notes")
            let backup = TemporaryDirectory.make("backup")
            let position = try position(stage.caller(), stage)
            try stage.run("INSERT INTO notes VALUES (1, 'a')")
            try stage.awaitLog()
            try save(way, stage, backup)
            try stage.run("INSERT INTO notes VALUES (2, 'not in the copy')")
            try stage.awaitLog()
            try stage.restart { try putBack(way, stage, backup) }
            // The position belongs to a history that has ended. The reply to the join reports this, so that the client
            // fetches its data again.
            let caller = try stage.caller()
            let ref = try caller.push(
                "realtime:a", "phx_join",
                Caller.join(
                    [binding("notes")], token: stage.token(),
                    more: #","broadcast":{"tidewire":{"resume":"\#(position)"}}"#))
            let reply = try caller.first { $0.event == "phx_reply" && $0.ref == ref }
            let standing = (reply.payload["response"] as? [String: Any])?["tidewire"] as? [String: Any]
            #expect(
                standing?["recovered"] as? Bool == false && standing?["reason"] as? String == "epoch_changed",
                "\(reply)")
            _ = try caller.first(\.isSubscription)
            try stage.run("INSERT INTO notes VALUES (3, 'c')")
            #expect(try caller.change().id == 3)
            let gaps = try EventLogReader.gaps(in: DiskDirectory(stage.dataDirectory + "/log"))
            #expect(gaps.count == 1)
        }
    }
}
