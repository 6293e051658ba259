import Change
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
    }
}
