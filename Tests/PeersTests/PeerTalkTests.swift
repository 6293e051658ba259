import Channels
import Diagnostics
import Nats
import Synchronization
import System
import TestSupport
import Testing

@testable import Peers

/// Tests of the exchange between nodes through a real NATS server.
@Suite(.within(minutes: 5)) struct PeerTalkTests {
    /// Records of a node's clients that a test reads and writes.
    private final class Clients: Sendable {
        let told: [[UInt8]]
        let learned = Mutex<[[UInt8]]>([])

        init(_ told: [[UInt8]]) { self.told = told }

        var records: PeerRecords {
            PeerRecords(
                changes: { [self] all in all ? told : [] },
                learn: { [self] _, _, content in
                    learned.withLock { $0.append(content) }
                    return true
                }, lose: { _ in }, takeClaims: { [] }, claimed: { _ in }, overheard: { _ in })
        }
    }

    private func talk(_ name: String, _ urls: [String]) -> PeerTalk {
        PeerTalk(NatsSettings(servers: urls, name: name), name: name, project: "test", metrics: ProjectMetrics())
    }

    /// Checks that a node that starts knows the clients of all others before it serves any, so that a client whose node
    /// ends right then goes on there.
    @Test func `a node that starts knows the clients of the others first`() throws {
        let servers = try NatsServers(NatsServers.Options(count: 1))
        // The first byte says that the content replaces what was known.
        let (first, second) = (Clients([[1, 10], [0, 11]]), Clients([[1, 20]]))
        let others = [talk("a", servers.clientURLs), talk("b", servers.clientURLs)]
        try others[0].start(first.records) { _ in }
        try others[1].start(second.records) { _ in }
        defer { for other in others { other.stop() } }
        #expect(others[0].waitForIntroduction() && others[1].waitForIntroduction())
        let newcomer = Clients([[1]])
        let third = talk("c", servers.clientURLs)
        try third.start(newcomer.records) { _ in }
        defer { third.stop() }
        #expect(third.waitForIntroduction(nanoseconds: 60_000_000_000))
        let known = newcomer.learned.withLock { $0 }
        #expect([[1, 10], [0, 11], [1, 20]].allSatisfy(known.contains), "\(known)")
    }

    @Test func `a node without others, or without records, does not wait for them`() throws {
        let servers = try NatsServers(NatsServers.Options(count: 1))
        let (alone, keeping) = (talk("a", servers.clientURLs), Clients([[1]]))
        try alone.start(nil) { _ in }
        defer { alone.stop() }
        #expect(alone.waitForIntroduction(nanoseconds: 60_000_000_000))
        let other = talk("b", servers.clientURLs)
        try other.start(keeping.records) { _ in }
        defer { other.stop() }
        #expect(other.waitForIntroduction(nanoseconds: 60_000_000_000))
    }

    @Test func `a node whose servers do not answer serves its clients in the end`() throws {
        let lonely = talk("a", ["nats://127.0.0.1:1"])
        try lonely.start(nil) { _ in }
        defer { lonely.stop() }
        #expect(!lonely.waitForIntroduction(nanoseconds: 300_000_000))
    }
}
