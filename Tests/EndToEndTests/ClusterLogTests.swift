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

        @Test func `every node has the same changes at the same positions`() throws {
            let stage = try Stage()
            for node in stage.nodes { try node.start(awaitingStream: false) }
            for node in stage.nodes { try eventually("a node that streams") { node.service?.status.isStreaming == true } }
            for number in 1...50 { try stage.database.run("INSERT INTO t VALUES (\(number), repeat('x', 100))") }
            let histories = try stage.nodes.map { try $0.caughtUp() }
            #expect(histories[0].changes.count == 50)
            let ends = stage.nodes.map { $0.service?.end?.state.position }
            #expect(ends[0] != nil && ends[1] == ends[0] && ends[2] == ends[0])
            #expect(histories[1].changes == histories[0].changes && histories[2].changes == histories[0].changes)
            #expect(histories[0].gaps.isEmpty)
        }
    }
}
