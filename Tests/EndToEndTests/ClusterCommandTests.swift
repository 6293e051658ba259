import Bytes
import Embedded
import Foundation
import Nats
import System
import TestSupport
import Testing

/// Tests of `tidewire cluster`, with hubs and a NATS server of their own.
extension EndToEndPrograms {
    @Suite(.serialized) struct ClusterCommandTests {
        private struct Ran {
            var output: String
            var code: Int32?

            func contains(_ text: String) -> Bool { output.contains(text) }
        }

        /// Hub program that is a node of the stage's cluster.
        private final class Node {
            let name: String
            let port: UInt16
            let dataDirectory = TemporaryDirectory.make("data")
            let settings: [String: String]
            private var process: ChildProcess?

            init(_ name: String, _ database: TestDatabase, _ policyURL: String, _ servers: NatsServers) throws {
                self.name = name
                port = UInt16(try FreePort.find(preferring: Int.random(in: 15_000..<32_000)))
                settings = [
                    "TIDEWIRE_DATABASE_URL": database.url, "TIDEWIRE_POLICY_DATABASE_URL": policyURL,
                    "TIDEWIRE_JWT_SECRET": HubForApps.secret,
                    "TIDEWIRE_OPERATOR_JWT_SECRET": HubForApps.operatorSecret,
                    "TIDEWIRE_CLUSTER": servers.url, "TIDEWIRE_CLUSTER_MONITOR": servers.monitorURL,
                    "TIDEWIRE_CLUSTER_NODE": name, "TIDEWIRE_CLUSTER_REPLICAS": "1", "TIDEWIRE_CLUSTER_TRIAL": "on",
                    "TIDEWIRE_RETENTION_SIZE": "64MB", "TIDEWIRE_SEGMENT_SIZE": "1MB",
                    "TIDEWIRE_DATA_DIR": dataDirectory, "TIDEWIRE_SLOT": database.slot,
                    "TIDEWIRE_LISTEN": "127.0.0.1:\(port)", "TIDEWIRE_DRAIN_TIME": "1s",
                ]
            }

            var url: String { "http://127.0.0.1:\(port)" }
            var isRunning: Bool { process?.isRunning ?? false }
            var log: String { (try? String(contentsOfFile: dataDirectory + "/serve.log", encoding: .utf8)) ?? "" }

            func start() throws {
                process = try ChildProcess(
                    [ServedHub.program, "serve"], output: dataDirectory + "/serve.log", environment: settings)
            }

            func stop(_ signal: Int32 = SIGTERM) {
                process?.signal(signal)
                process?.wait(milliseconds: 60_000)
                process = nil
            }

            deinit { stop(SIGKILL) }
        }

        private final class Stage {
            let servers: NatsServers
            let database: TestDatabase
            let nodes: [Node]

            init() throws {
                var options = NatsServers.Options(count: 1)
                options.syncInterval = "always"
                let (servers, database) = (try NatsServers(options), try TestDatabase())
                (self.servers, self.database) = (servers, database)
                for file in SQLFile.foundation + SQLFile.scenarios { try file.apply(database.connection) }
                let policyURL = try database.documentedLogins(becoming: ["authenticated"]).policyURL
                nodes = try ["hub1", "hub2"].map { try Node($0, database, policyURL, servers) }
            }

            deinit {
                for node in nodes { node.stop(SIGKILL) }
                servers.stopAll()
                try? eventually("the slot to be let go") {
                    (try? database.run(
                        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '\(database.slot)'"
                    )) != nil
                }
            }
        }

        private static func cluster(_ words: String..., at node: Node) throws -> Ran {
            let (output, code) = try said(
                by: [ServedHub.program, "cluster"] + words + ["--server", node.url],
                environment: ["OPERATOR_TOKEN": HubForApps.operatorToken], withErrors: true)
            return Ran(output: output, code: code)
        }

        private static func repair(_ words: String..., of node: Node) throws -> Ran {
            let (output, code) = try said(
                by: [ServedHub.program, "cluster", "repair"] + words, environment: node.settings, withErrors: true)
            return Ran(output: output, code: code)
        }

        private static func ready(_ node: Node) throws -> String {
            let client = try TestClient(port: node.port)
            try client.send("GET /ready HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            return String(decoding: try client.receiveAll(), as: UTF8.self)
        }

        private static func wait(for what: String, _ node: Node, _ condition: (Ran) -> Bool) throws {
            var last = Ran(output: "", code: nil)
            do {
                try eventually(what, seconds: 90) {
                    last = try cluster("status", at: node)
                    return condition(last)
                }
            } catch {
                Issue.record("\(what): \(last)\n\(node.log.suffix(2_000))")
                throw error
            }
        }

        @Test func `operators see the nodes, hand the slot over, and repair a node whose stream was lost`() throws {
            let stage = try Stage()
            let (one, two) = (stage.nodes[0], stage.nodes[1])
            #expect(try Self.cluster("status", at: one).code == 4)
            try one.start()
            try Self.wait(for: "hub1 to feed", one) { $0.code == 0 && $0.contains("feeding") }
            let early = try Self.cluster("handover", at: one)
            #expect(early.code == 1 && early.contains("no other node of the cluster is there"), "\(early)")
            try two.start()
            try Self.wait(for: "hub2 to follow", two) {
                $0.code == 0 && $0.contains("following") && $0.contains("hub1 since")
            }
            try eventually("hub1 to know hub2") {
                let members = try Self.cluster("members", at: one)
                return members.code == 0 && members.contains("hub2") && members.contains("2 nodes")
            }
            #expect(try Self.ready(two).contains(#""cluster":{"node":"hub2","state":"following","far_behind":false"#))
            let lines = try Self.cluster("members", "--json", at: two).output.split(separator: "\n")
            #expect(
                lines.count == 2 && lines[0].hasPrefix(#"{"node":"hub2","state":"following","asked":true"#), "\(lines)")

            // The node that follows has nothing to give.
            let wrong = try Self.cluster("handover", at: two)
            #expect(
                wrong.code == 1 && wrong.contains("node hub2 does not hold the replication slot; hub1 does"), "\(wrong)"
            )
            let given = try Self.cluster("handover", at: one)
            #expect(
                given.code == 0 && given.contains("node hub2 holds the slot now"), "\(given)\n\(one.log.suffix(2_000))")
            try Self.wait(for: "hub1 to know that hub2 feeds", one) { $0.code == 0 && $0.contains("hub2 since") }
            #expect(try Self.repair(of: one).code == 0)

            // A node that is gone is silent for the others.
            one.stop(SIGKILL)
            try eventually("hub1 to be silent") {
                let members = try Self.cluster("members", at: two)
                return members.code == 1 && members.contains("silent")
            }
            two.stop()
            try Self.loseStream(stage)
            try two.start()
            try Self.wait(for: "hub2 to refuse", two) { $0.code == 1 && $0.contains("stream_missing") }
            #expect(try Self.ready(two).hasPrefix("HTTP/1.1 503"))
            #expect(try Self.ready(two).contains(#""refusal":"stream_missing""#))
            let busy = try Self.repair("--keep-log", "--yes", of: two)
            #expect(busy.code == 1 && busy.contains("Stop the hub of this node first"), "\(busy)")
            two.stop()
            let asked = try Self.repair(of: two)
            #expect(asked.code == 1 && asked.contains("one log must be chosen"), "\(asked)")
            let kept = try Self.repair("--keep-log", "--yes", of: two)
            #expect(kept.code == 0 && kept.contains("a new stream continues it"), "\(kept)")
            try two.start()
            try Self.wait(for: "hub2 to feed again", two) { $0.code == 0 && $0.contains("feeding") }
            let other = try Self.repair("--json", of: one)
            #expect(other.code == 1 && other.contains(#""refusal":"other_stream""#), "\(other)")
            let moved = try Self.repair("--yes", of: one)
            #expect(moved.code == 0 && moved.contains("moved the log to \(one.dataDirectory)/log.moved-"), "\(moved)")
            try one.start()
            try Self.wait(for: "hub1 to follow again", one) { $0.code == 0 && $0.contains("following") }
            stage.servers.kill(0)
            #expect(try Self.repair(of: one).code == 4)
        }

        private static func loseStream(_ stage: Stage) throws {
            let jet = try JetStream(
                NatsSettings(servers: stage.servers.clientURLs, name: "operator"), bell: Wake(), maximumBytes: 1 << 20)
            let names = try jet.ask("STREAM.NAMES")["streams"]?.array?.compactMap(\.string) ?? []
            for name in names { _ = try jet.ask("STREAM.DELETE.\(name)") }
            #expect(names.count == 1)
        }

        @Test func `a hub on its own is no node of a cluster`() throws {
            let hub = try HubForApps(["TIDEWIRE_OPERATOR_JWT_SECRET": HubForApps.operatorSecret])
            try hub.start()
            for command in ["status", "members", "handover"] {
                var answer = Ran(output: "", code: nil)
                try eventually("the hub to answer") {
                    let (output, code) = try said(
                        by: [ServedHub.program, "cluster", command, "--server", "http://127.0.0.1:\(hub.port)"],
                        environment: ["OPERATOR_TOKEN": HubForApps.operatorToken], withErrors: true)
                    answer = Ran(output: output, code: code)
                    return code != 4
                }
                #expect(answer.code == 1 && answer.contains("this hub is no node of a cluster"), "\(answer)")
            }
            let (output, code) = try said(
                by: [ServedHub.program, "cluster", "repair", "--data-dir", hub.dataDirectory], withErrors: true)
            #expect(code == 1 && output.contains("this hub is no node of a cluster"), "\(output)")
        }
    }
}
