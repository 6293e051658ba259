import Bytes
import Change
import Diagnostics
import EventLog
import Nats
import Replication
import System
import TestSupport
import Testing

@testable import Ingest

extension EndToEnd {
    /// Tests of hubs that share a log through real NATS servers.
    @Suite(.within(minutes: 10)) struct ClusterLogTests {
        /// Three NATS servers, a database, and nodes of a cluster that follow it.
        private final class Stage {
            let servers: NatsServers
            let database: TestDatabase
            private(set) var nodes: [HubUnderTest] = []

            init(nodes count: Int = 3) throws {
                servers = try NatsServers()
                try servers.waitUntilReady()
                database = try TestDatabase()
                try database.run(
                    """
                    CREATE TABLE t (id int PRIMARY KEY, a text); ALTER TABLE t REPLICA IDENTITY FULL;
                    CREATE PUBLICATION supabase_realtime FOR TABLE t
                    """)
                for number in 1...count { nodes.append(try node("node-\(number)")) }
            }

            func node(_ name: String) throws -> HubUnderTest {
                let address = servers.clientURLs
                return try HubUnderTest(database) { settings in
                    settings.cluster = ClusterSettings(
                        servers: NatsSettings(servers: address, name: name), node: name, project: "test")
                }
            }

            deinit {
                for node in nodes { node.stop() }
                servers.stopAll()
            }
        }

        /// Waits until every node that runs has everything, and checks that they agree about all of it.
        private static func agree(_ stage: Stage, _ expected: Int) throws {
            let nodes = stage.nodes.filter { $0.service != nil }
            for node in nodes { try eventually("a node that follows") { node.service?.status.isStreaming == true } }
            let histories = try nodes.map { try $0.caughtUp() }
            try eventually("equal ends") { Set(nodes.map { $0.service?.end?.state.position }).count == 1 }
            #expect(histories[0].changes.count == expected)
            for history in histories.dropFirst() {
                #expect(history.changes == histories[0].changes)
                #expect(history.gaps == histories[0].gaps)
            }
        }

        private static func start(_ stage: Stage) throws {
            for node in stage.nodes { try node.start(awaitingStream: false) }
            for node in stage.nodes {
                try eventually("a node that follows") { node.service?.status.isStreaming == true }
            }
        }

        @Test func `every node has the same changes at the same positions`() throws {
            let stage = try Stage()
            try Self.start(stage)
            for number in 1...50 { try stage.database.run("INSERT INTO t VALUES (\(number), repeat('x', 100))") }
            try Self.agree(stage, 50)
            #expect(try stage.nodes[0].history().gaps.isEmpty)
        }

        @Test func `another node takes the slot over, and a node that was away has everything afterwards`() throws {
            let stage = try Stage()
            try Self.start(stage)
            var written = 0
            for away in [0, 1, 2, 0] {
                stage.nodes[away].stop()
                for _ in 1...20 {
                    written += 1
                    try stage.database.run("INSERT INTO t VALUES (\(written), 'a')")
                }
                try Self.agree(stage, written)
                try stage.nodes[away].start(awaitingStream: false)
                try Self.agree(stage, written)
            }
            #expect(try stage.nodes[0].history().gaps.isEmpty)
        }

        @Test func `a large transaction is whole or not there, on every node`() throws {
            let stage = try Stage()
            try Self.start(stage)
            try stage.database.run("INSERT INTO t SELECT n, repeat(md5(n::text), 40) FROM generate_series(1, 8000) n")
            try stage.database.run("INSERT INTO t VALUES (9000, repeat('y', 3000000))")
            stage.nodes[0].stop()
            try stage.database.run("UPDATE t SET a = 'b' WHERE id < 5000")
            try Self.agree(stage, 8_000 + 1 + 4_999)
            try stage.nodes[0].start(awaitingStream: false)
            try Self.agree(stage, 8_000 + 1 + 4_999)
        }

        @Test func `a gap and its epoch are the same on every node`() throws {
            let stage = try Stage()
            try Self.start(stage)
            try stage.database.run("INSERT INTO t VALUES (1, 'a')")
            try Self.agree(stage, 1)
            for node in stage.nodes { node.stop() }
            try eventually("a free slot") {
                (try? stage.database.run("SELECT pg_drop_replication_slot('\(stage.database.slot)')")) != nil
            }
            try stage.database.run("INSERT INTO t VALUES (2, 'lost')")
            try Self.start(stage)
            try stage.database.run("INSERT INTO t VALUES (3, 'a')")
            try Self.agree(stage, 2)
            #expect(try stage.nodes[2].history().gaps.map(\.reason) == [.slotMissing])
        }

        @Test func `servers that fail lose nothing`() throws {
            let stage = try Stage()
            try Self.start(stage)
            var written = 0
            for fault in 0..<3 {
                let leader = stage.servers.leader(ofStream: "TW_test") ?? 0
                switch fault {
                case 0: stage.servers.kill(leader)
                case 1: for server in 0..<3 { stage.servers.kill(server) }
                default: stage.servers.terminate(leader)
                }
                for _ in 1...20 {
                    written += 1
                    try stage.database.run("INSERT INTO t VALUES (\(written), 'a')")
                }
                for server in 0..<3 where !stage.servers.isRunning(server) { try stage.servers.start(server) }
                try Self.agree(stage, written)
            }
            #expect(try stage.nodes[0].history().gaps.isEmpty)
        }

        @Test func `a log that was begun without a cluster goes on in one, and new nodes begin where it stood`() throws
        {
            let stage = try Stage()
            let first = stage.nodes[0]
            let cluster = first.settings.cluster
            first.settings.cluster = nil
            try first.start()
            for number in 1...10 { try stage.database.run("INSERT INTO t VALUES (\(number), 'alone')") }
            let before = try first.caughtUp()
            #expect(before.changes.count == 10)
            let place = first.service?.end?.state.position
            first.stop()
            first.settings.cluster = cluster
            try first.start()
            for node in stage.nodes.dropFirst() { try node.start() }
            for number in 11...20 { try stage.database.run("INSERT INTO t VALUES (\(number), 'together')") }
            let histories = try stage.nodes.map { try $0.caughtUp() }
            #expect(histories[0].changes.count == 20 && histories[0].gaps.isEmpty)
            #expect(histories[1].changes == Array(histories[0].changes.suffix(10)))
            #expect(first.service?.end?.state.position.epoch == place?.epoch)
            try eventually("equal ends") { Set(stage.nodes.map { $0.service?.end?.state.position }).count == 1 }
        }

        @Test func `a node that ran alone after the cluster does not come back with what the stream lacks`() throws {
            let stage = try Stage(nodes: 2)
            try Self.start(stage)
            try stage.database.run("INSERT INTO t VALUES (1, 'together')")
            try Self.agree(stage, 1)
            for node in stage.nodes { node.stop() }
            let stranger = stage.nodes[0]
            let cluster = stranger.settings.cluster
            stranger.settings.cluster = nil
            try stranger.start()
            try stage.database.run("INSERT INTO t VALUES (2, 'alone')")
            try stranger.caughtUp()
            stranger.stop()
            stranger.settings.cluster = cluster
            try stranger.start(awaitingStream: false)
            try eventually("a refusal") {
                stranger.service?.status.trouble?.message.contains("this node's event log is not the cluster's") == true
            }
        }

        @Test func `a second node of the same name is told, and does not take the slot`() throws {
            let stage = try Stage(nodes: 2)
            stage.nodes[1].settings.cluster?.node = "node-1"
            try stage.nodes[0].start()
            try stage.nodes[1].start(awaitingStream: false)
            try eventually("the message about the name") {
                stage.nodes[1].service?.status.trouble?.message.contains("has the name node-1") == true
            }
            #expect(stage.nodes[0].service?.status.isStreaming == true)
            try stage.database.run("INSERT INTO t VALUES (1, 'a')")
            #expect(try stage.nodes[0].caughtUp().changes.count == 1)
        }

        @Test func `a log of its own does not join a cluster that has one`() throws {
            let stage = try Stage(nodes: 2)
            try stage.nodes[0].start()
            let stranger = stage.nodes[1]
            let cluster = stranger.settings.cluster
            stranger.settings.cluster = nil
            stranger.settings.replication.slot += "_own"
            try stranger.start()
            stranger.stop()
            stranger.settings.cluster = cluster
            try stranger.start(awaitingStream: false)
            try eventually("a refusal") {
                stranger.service?.status.trouble?.message.contains("this node's event log is not the cluster's") == true
            }
            stranger.stop()
            try stage.database.run("SELECT pg_drop_replication_slot('\(stranger.settings.replication.slot)')")
        }

        // MARK: What operators see and do

        /// Connection to the servers, as the operator's own program would have.
        private static func jet(_ stage: Stage) throws -> JetStream {
            try JetStream(
                NatsSettings(servers: stage.servers.clientURLs, name: "operator"), bell: Wake(), maximumBytes: 1 << 20)
        }

        private static func config(_ stage: Stage) throws -> JSONObject {
            try #require(try jet(stage).ask("STREAM.INFO.TW_test")["config"]?.object)
        }

        private static func state(_ node: HubUnderTest) -> ClusterStatus.State? { node.service?.cluster?.report.state }

        private static func feeder(_ stage: Stage) -> HubUnderTest? { stage.nodes.first { state($0) == .feeding } }

        @Test func `each node says who feeds the stream, and how far it is itself`() throws {
            let stage = try Stage()
            try Self.start(stage)
            for number in 1...5 { try stage.database.run("INSERT INTO t VALUES (\(number), 'a')") }
            try Self.agree(stage, 5)
            let feeder = try #require(Self.feeder(stage)?.settings.cluster?.node)
            for node in stage.nodes {
                try eventually("the state of \(node.settings.cluster?.node ?? "")") {
                    guard let report = node.service?.cluster?.report, let health = report.stream else { return false }
                    let isFeeder = node.settings.cluster?.node == feeder
                    return report.state == (isFeeder ? .feeding : .following) && report.feeder == feeder
                        && report.missing == 0 && report.tenure > 0 && (report.feedsSince != nil) == isFeeder
                        && report.lag(at: Clock.monotonicNanoseconds()) == 0
                        && !report.isFarBehind(at: Clock.monotonicNanoseconds())
                        && health.leader != nil && health.replicas.count == 2
                }
                #expect(
                    node.settings.replication.metrics.clusterFeeding.value == (Self.state(node) == .feeding ? 1 : 0))
            }
            let latencies = Self.feeder(stage)?.settings.replication.metrics.clusterAcknowledgementSeconds.snapshot()
            #expect((latencies?.count ?? 0) > 0)
        }

        @Test func `the feeder hands the slot over when it is asked to, and nothing is lost`() throws {
            let stage = try Stage()
            try Self.start(stage)
            var written = 0
            for _ in 1...3 {
                let feeder = try #require(Self.feeder(stage))
                let tenure = feeder.service?.cluster?.report.tenure ?? 0
                written += 1
                try stage.database.run("INSERT INTO t VALUES (\(written), 'before')")
                #expect(feeder.service?.cluster?.wantHandover() == true)
                written += 1
                try stage.database.run("INSERT INTO t VALUES (\(written), 'meanwhile')")
                try eventually("another feeder") { Self.feeder(stage).map { $0 !== feeder } ?? false }
                #expect((Self.feeder(stage)?.service?.cluster?.report.tenure ?? 0) > tenure)
                #expect(feeder.service?.cluster?.wantHandover() == false)
                try Self.agree(stage, written)
            }
            #expect(try stage.nodes[0].history().gaps.isEmpty)
        }

        @Test func `the stream follows the settings for retention, and keeps its log`() throws {
            let stage = try Stage(nodes: 1)
            let node = stage.nodes[0]
            node.settings.retentionAge = .seconds(7 * 86_400)
            node.settings.retentionBytes = 64 << 20
            try node.start()
            try stage.database.run("INSERT INTO t VALUES (1, 'a')")
            try node.caughtUp()
            let before = try Self.config(stage)
            #expect(before["max_age"]?.integer == 604_800_000_000_000 && before["max_bytes"]?.integer == 64 << 20)
            node.stop()
            node.settings.retentionAge = .seconds(90)
            node.settings.retentionBytes = nil
            node.settings.cluster?.replicas = 1
            try node.start()
            try eventually("the new configuration") { try Self.config(stage)["max_age"]?.integer == 90_000_000_000 }
            let after = try Self.config(stage)
            #expect(after["max_bytes"]?.integer == -1 && after["num_replicas"]?.integer == 1)
            #expect(after["metadata"]?.object?["tidewire.log"] == before["metadata"]?.object?["tidewire.log"])
            #expect(after["deny_delete"]?.bool == true && after["deny_purge"]?.bool == true)
            try stage.database.run("INSERT INTO t VALUES (2, 'a')")
            #expect(try node.caughtUp().changes.count == 2)
        }

        @Test func `a stream that is lost is not made anew by a log that follows it, until an operator decides`() throws
        {
            let stage = try Stage(nodes: 2)
            try Self.start(stage)
            try stage.database.run("INSERT INTO t VALUES (1, 'a')")
            try Self.agree(stage, 1)
            for node in stage.nodes { node.stop() }
            let jet = try Self.jet(stage)
            _ = try jet.ask("STREAM.DELETE.TW_test")
            for node in stage.nodes {
                try node.start(awaitingStream: false)
                try eventually("the refusal") { node.service?.cluster?.report.refusal == .streamMissing }
                #expect(node.service?.cluster?.report.isFarBehind(at: Clock.monotonicNanoseconds()) == true)
                #expect(node.settings.replication.metrics.clusterRefused.value == 1)
                node.stop()
            }
            let (first, second) = (stage.nodes[0], stage.nodes[1])
            let repairs = try stage.nodes.map { node in
                ClusterRepair(try #require(node.settings.cluster), dataDirectory: node.dataDirectory)
            }
            #expect(try repairs[0].diagnose().refusal == .streamMissing)
            try repairs[0].keepLog()
            #expect(try repairs[0].diagnose().refusal == nil)
            try first.start()
            try stage.database.run("INSERT INTO t VALUES (2, 'a')")
            #expect(try first.caughtUp().changes.count == 2)
            // A running hub holds its log.
            #expect(throws: ClusterRepair.Failure.self) { try repairs[0].moveLog() }
            #expect(try repairs[1].diagnose().refusal == .otherStream)
            // This log would not continue the new stream.
            #expect(throws: ClusterRepair.Failure.self) { try repairs[1].keepLog() }
            let moved = try repairs[1].moveLog()
            #expect(try LoggedHistory.read(moved).changes.filter { $0.table == "public.t" }.count == 1)
            try second.start()
            try stage.database.run("INSERT INTO t VALUES (3, 'a')")
            #expect(try second.caughtUp().changes.map { $0.new["id"] } == ["2", "3"])
            #expect(try first.caughtUp().changes.count == 3)
            #expect(try first.history().gaps.isEmpty)
        }
    }
}
