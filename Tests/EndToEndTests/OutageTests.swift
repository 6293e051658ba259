import Diagnostics
import Embedded
import Foundation
import Postgres
import System
import TestSupport
import Testing

extension EndToEndPrograms {
    /// Tests of the hub's log lines about databases that become unreachable and return: one line for each event, with
    /// the project's name.
    @Suite(.serialized) struct OutageTests {
        private struct Line {
            let level, event: String
            let project: String?
        }

        /// Hub with two projects, each on its own cluster.
        private final class Stage {
            let clusters: [PrivateCluster]
            let databases: [TestDatabase]
            let hub: ServedHub
            private(set) var port: UInt16 = 0

            init() throws {
                clusters = try (0..<2).map { _ in try TestCluster.fresh() }
                databases = try clusters.map { try TestDatabase(on: $0) }
                for database in databases {
                    try database.run(
                        "CREATE TABLE notes (id int PRIMARY KEY); CREATE PUBLICATION supabase_realtime FOR TABLE notes")
                }
                hub = ServedHub(database: databases[0])
                try hub.start(
                    ["--log-format", "json"],
                    environment: [
                        "TIDEWIRE_OPERATOR_JWT_SECRET": HubForApps.operatorSecret,
                        "TIDEWIRE_JWT_SECRET": HubForApps.secret,
                    ])
                try eventually("the hub's address") {
                    let text = try String(contentsOfFile: hub.output, encoding: .utf8)
                    let found = text.firstMatch(of: /"listening","address":"127\.0\.0\.1:(\d+)"/)
                    port = found.flatMap { UInt16($0.1) } ?? 0
                    return port != 0
                }
                try makeSecond()
                for name in ["realtime-dev", "second"] {
                    try eventually("\(name) to be ready") { try ask("GET", "/ready/\(name)") == 200 }
                }
            }

            deinit {
                hub.kill()
                for cluster in clusters { cluster.stop() }
            }

            private func makeSecond() throws {
                let url = clusters[1].url(database: databases[1].name)
                let body =
                    #"{"tenant":{"external_id":"second","jwt_secret":"\#(HubForApps.secret)","extensions":[{"type":"#
                    + #""postgres_cdc_rls","settings":{"database_url":"\#(url)","slot_name":"second"}}]}}"#
                let status = try ask("PUT", "/api/tenants/second", body)
                try #require([200, 201].contains(status), "\(status)")
            }

            func ask(_ method: String, _ path: String, _ body: String = "") throws -> Int {
                let client = try TestClient(port: port)
                try client.send(
                    """
                    \(method) \(path) HTTP/1.1\r\nHost: h\r\nConnection: close\r\nAuthorization: Bearer \
                    \(HubForApps.operatorToken)\r\nContent-Type: application/json\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)
                    """)
                return String(decoding: try client.receiveAll(), as: UTF8.self).split(separator: " ").dropFirst().first
                    .flatMap { Int($0) } ?? 0
            }

            func said() throws -> [Line] {
                try String(contentsOfFile: hub.output, encoding: .utf8).split(separator: "\n").map { line in
                    let fields = try #require(
                        try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any], "\(line)")
                    return Line(
                        level: fields["level"] as? String ?? "", event: fields["event"] as? String ?? "",
                        project: fields["project"] as? String)
                }
            }
        }

        @Test(arguments: [0, 1])
        func `a database that goes and comes back is one line each, of its project`(_ which: Int) throws {
            let stage = try Stage()
            let name = ["realtime-dev", "second"][which]
            // The roles, the catalog and the other parts come to rest first.
            usleep(2_000_000)
            let before = try stage.said().count
            let began = Clock.monotonicNanoseconds()
            // The hub repeats the line about a lasting problem at intervals. On a machine that stalls, this may happen
            // here.
            let reminders = {
                Int((Clock.monotonicNanoseconds() - began) / Limits.troubleReminderInterval.wholeNanoseconds)
            }
            stage.clusters[which].stop()
            try eventually("the outage to be noticed") { try stage.ask("GET", "/ready/\(name)") == 503 }
            usleep(5_000_000)
            let during = try stage.said().dropFirst(before)
            #expect(
                (1...1 + reminders()).contains(during.count { $0.level == "warning" })
                    && during.allSatisfy { ["info", "warning"].contains($0.level) },
                "\(during.map { "\($0.level) \($0.event)" })")
            #expect(during.allSatisfy { $0.project == name }, "\(during)")
            try stage.clusters[which].start()
            try eventually("it to be back") { try stage.ask("GET", "/ready/\(name)") == 200 }
            usleep(2_000_000)
            let after = try stage.said().dropFirst(before + during.count)
            #expect(after.allSatisfy { $0.project == name && ["info", "warning"].contains($0.level) }, "\(after)")
            #expect(after.count { $0.level == "warning" } <= reminders(), "\(after)")
            #expect(after.filter { $0.event == "streaming" }.count == 1, "\(after.map(\.event))")
        }

        @Test func `each line of two projects says whose it is`() throws {
            let stage = try Stage()
            let aboutNobody = Set(try stage.said().filter { $0.project == nil }.map(\.event))
            let ofWhole: Set = ["starting", "listening"]
            #expect(aboutNobody.subtracting(ofWhole).isEmpty, "\(aboutNobody)")
            for name in ["realtime-dev", "second"] {
                #expect(try stage.said().contains { $0.project == name && $0.event == "streaming" })
            }
        }
    }
}
