import Diagnostics
import Foundation
import TestSupport
import Testing

@testable import Server

extension Gateways {
    /// Tests of damage in a part of the log that only returning clients read. Other clients must not notice it.
    @Suite(.serialized) struct DamagedPastTests {
        enum Place: CaseIterable { case header, middle }

        private func flipByte(_ place: Place, of file: String) throws {
            let handle = try #require(FileHandle(forUpdatingAtPath: file))
            defer { try? handle.close() }
            let offset = place == .header ? 40 : try handle.seekToEnd() / 2
            try handle.seek(toOffset: offset)
            let byte = try #require(try handle.read(upToCount: 1)?.first)
            try handle.seek(toOffset: offset)
            try handle.write(contentsOf: Data([byte ^ 0x10]))
        }

        private func join(_ stage: GatewayStage, at position: String) throws -> (Caller, [String: Any]) {
            let caller = try stage.caller()
            let ref = try caller.push(
                "realtime:a", "phx_join",
                Caller.join(
                    [binding("notes")], token: stage.token(),
                    more: #","broadcast":{"tidewire":{"resume":"\#(position)"}}"#))
            let reply = try caller.first { $0.event == "phx_reply" && $0.ref == ref }
            return (caller, (reply.payload["response"] as? [String: Any])?["tidewire"] as? [String: Any] ?? [:])
        }

        @Test(arguments: Place.allCases)
        func `who comes back to a damaged part is told, and those who are there hear everything`(place: Place) throws {
            let stage = try GatewayStage(
                "CREATE TABLE notes (id int PRIMARY KEY, body text); GRANT SELECT ON notes TO READER",
                publication: "FOR TABLE notes")
            let live = try stage.caller()
            let wish = #","broadcast":{"tidewire":{"snapshot":true}}"#
            try live.subscribe("realtime:a", [binding("notes")], token: stage.token(), more: wish)
            let message = try live.first { $0.payload["position"] is String }
            let position = try #require(message.payload["position"] as? String)
            for id in 1...40 {
                try stage.run(
                    "INSERT INTO notes SELECT \(id), string_agg(md5(i::text), '') FROM generate_series(1, 3000) i")
            }
            try stage.awaitLog()
            #expect(try live.ids(40) == Array(1...40))
            try flipByte(place, of: stage.dataDirectory + "/log/0000000001.segment")
            // The test repeats this in a loop: a damaged past must not affect the present.
            for id in 41...43 {
                let (caller, standing) = try join(stage, at: position)
                if place == .header {
                    #expect(standing["recovered"] as? Bool == false)
                    #expect(standing["reason"] as? String == "log_unreadable")
                    _ = try caller.first(\.isSubscription)
                } else {
                    _ = try caller.first { $0.payload["code"] as? String == "ChangesMissing" }
                }
                try stage.run("INSERT INTO notes VALUES (\(id), 'new')")
                #expect(try live.change().id == id)
                var heard = try #require(try caller.change().id)
                while heard < 41 { heard = try #require(try caller.change().id) }
                #expect(heard == id)
                caller.hangUp()
            }
            #expect(live.takeUnheard().allSatisfy { $0.payload["code"] as? String != "ChangesMissing" })
            #expect(stage.metrics.logUnreadable.value == 0)
        }
    }
}
