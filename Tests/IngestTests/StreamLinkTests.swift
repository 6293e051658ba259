import Bytes
import Change
import Cluster
import Diagnostics
import Nats
import System
import TestSupport
import Testing

@testable import Ingest

/// Tests of a node's connection to the stream, with a real NATS server.
@Suite(.within(minutes: 5)) struct StreamLinkTests {
    private let names = ClusterNames(key: "test")
    private let log = ClusterLogID(high: 1, low: 2)

    private func link(_ node: String, _ servers: NatsServers) throws -> StreamLink {
        let jet = try JetStream(
            NatsSettings(servers: servers.clientURLs, name: node), bell: Wake(), maximumBytes: 1 << 20)
        return try StreamLink(jet, names, node: node, metrics: ProjectMetrics())
    }

    /// Appends a message as a candidate does. Returns true if the stream has stored it.
    private func stand(_ link: StreamLink, after sequence: UInt64, _ chain: ClusterChain) throws -> Bool {
        var batch = BatchBuilder()
        batch.addResigned()
        let head = StreamHead(
            isFirst: true, isLast: true, log: log, tenure: sequence + 1, epoch: 0, offset: 0, position: .zero)
        try link.append(batch, head, after: sequence, chain)
        while true {
            switch link.settle(within: 1_000_000_000) {
            case .waiting: continue
            case .stored: return true
            case .lost: return false
            }
        }
    }

    /// Checks a candidate that loses to another node. The other node's message arrives while the candidate waits for the
    /// answer to its own, and must still be read.
    @Test func `a message that arrives while a candidate stands is read afterwards`() throws {
        let servers = try NatsServers(NatsServers.Options(count: 1))
        let (winner, loser) = (try link("winner", servers), try link("loser", servers))
        let wanted = StreamConfiguration(replicas: 1, age: nil, bytes: nil)
        _ = try ClusterStream.open(winner.jet, names, wanted, mayMake: true)
        let consumer = try StreamConsumer(loser.jet, stream: names.stream, from: 1)
        defer { consumer.end() }
        try consumer.ask()
        #expect(try stand(winner, after: 0, ClusterChain()))
        // The message is there by then, and on a slow machine later, which is no fault either.
        BackgroundThread.rest(nanoseconds: 1_000_000_000)
        #expect(try !stand(loser, after: 0, ClusterChain()))
        var read: [UInt64] = []
        #expect(
            eventually {
                read += loser.jet.take().letters.compactMap { consumer.take($0, now: 0)?.sequence }
                return read == [1]
            })
    }
}
