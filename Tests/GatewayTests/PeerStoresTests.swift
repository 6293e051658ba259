import Channels
import Diagnostics
import EventLog
import Settings
import System
import TestSupport
import Testing

@testable import Gateway
@testable import Peers

/// Tests of stores of clients' positions that belong to nodes of a cluster, which tell each other about their clients.
@Suite(.within(minutes: 2)) struct PeerStoresTests {
    private final class Node {
        let home: UInt64
        let directory = MemoryDirectory()
        private let time: SteppedTime
        /// Number of the running process; zero while the node is down.
        private(set) var number: UInt64 = 0
        private(set) var store: ResumeStore?
        private(set) var records: PeerRecords?

        init(_ home: UInt64, _ time: SteppedTime) {
            self.home = home
            self.time = time
        }

        func start(_ number: UInt64) throws {
            self.number = number
            let store = try ResumeStore(
                loops: 1, scope: .sessions, grace: .seconds(100_000), in: directory, time: time,
                secret: ResumeRegistry.Secret(first: home, second: 1))
            (self.store, records) = (store, store.records(time: time))
        }

        func kill() { (number, store, records) = (0, nil, nil) }
    }

    private struct Client {
        let name: UInt64
        /// Index of the node that serves the client.
        var node: Int?
        var place: ResumeRegistry.Place?
        var ref: UInt32 = 0
        var acknowledged: UInt64 = 0
        /// What the node that served the client last has of it.
        var held: UInt64 = 0
        /// What that node had when it last told the others.
        var known: UInt64 = 0
        /// Index of the last node, if it has not written to its disk that it serves the client.
        var unwrittenAt: Int?
        /// Index of a node that was killed, and does not know the client since.
        var forgottenBy: Int?
        /// True if a second node was killed before the client came to one. No running node needs to know it then.
        var isLost = false
        /// True if the client was told that changes may be missing, and the other nodes do not know that it heard that.
        var isTold = false
        /// True if the client has acknowledged something since it joined.
        var hasAnswered = false

        func key(_ secret: ResumeRegistry.Secret) -> ResumeKey { ResumeKey(high: name, low: secret.first) }
    }

    /// Three nodes, their clients, and the letters between them, which all arrive.
    private struct Cluster {
        let time = SteppedTime()
        private let areNodesKilled: Bool
        var nodes: [Node]
        var clients = (1...6).map { Client(name: $0) }
        /// Ends of sockets that nodes have not noticed yet.
        private var ends: [(node: Int, number: UInt64, client: Client)] = []
        private var started: UInt64 = 0

        init(areNodesKilled: Bool) throws {
            self.areNodesKilled = areNodesKilled
            let time = time
            nodes = (1...3).map { Node($0, time) }
            for index in nodes.indices { try start(index) }
        }

        var running: [Int] { nodes.indices.filter { nodes[$0].store != nil } }

        mutating func start(_ index: Int) throws {
            started += 1
            try nodes[index].start(started)
            exchange(all: true)
        }

        mutating func kill(_ index: Int) {
            let number = nodes[index].number
            nodes[index].kill()
            for other in nodes { other.records?.lose(number) }
            for client in clients.indices {
                if clients[client].node == index { clients[client].node = nil }
                if clients[client].forgottenBy != nil { clients[client].isLost = true }
                if clients[client].unwrittenAt == index { clients[client].forgottenBy = index }
            }
        }

        /// Delivers what each node has to tell. It also tells what letters caused.
        func exchange(all: Bool = false) {
            for round in 0..<3 {
                for node in nodes {
                    guard let records = node.records else { continue }
                    let others = nodes.filter { $0.home != node.home }
                    for content in records.changes(all && round == 0) {
                        for other in others { #expect(other.records?.learn(node.number, node.home, content) != false) }
                    }
                    for claim in records.takeClaims() {
                        for other in others {
                            other.home == claim.home ? other.records?.claimed(claim) : other.records?.overheard(claim)
                        }
                    }
                }
            }
        }

        mutating func join(_ index: Int, at node: Int) throws {
            guard let store = nodes[node].store, clients[index].forgottenBy != node else { return }
            if let former = clients[index].node { ends.append((former, nodes[former].number, clients[index])) }
            clients[index].ref += 1
            let client = clients[index]
            let (taker, now) = (ResumeRegistry.Taker(address: 1, socket: 1), time.monotonicNanoseconds())
            let key = client.key(ResumeRegistry.Secret(first: nodes[node].home, second: 1))
            let arrival = store.arrival(key, of: taker, firstRef: client.ref, on: 0, now: now, keyOf: client.key)
            switch arrival {
            case .begins, .unknown:
                #expect(client.ref == 1 || client.isLost, "client \(client.name) is not recognized at node \(node)")
                clients[index].place = store.arrive(
                    key, of: taker, on: 0, lastRef: client.ref,
                    at: EventLogPosition(epoch: 1, offset: client.acknowledged), owesLoss: false, now: now)
                clients[index].held = client.acknowledged
            case .goesOn(let claim):
                #expect(claim.mark.offset <= client.acknowledged, "nothing is passed over")
                // A node that was down when another one took its client repeats to the client.
                #expect(areNodesKilled || claim.mark.offset >= client.known, "a repetition of what a node knew")
                #expect(!claim.owesLoss || running.count < 3 || client.isTold, "told without cause")
                clients[index].place = claim.place
                // A node that was down may tell the client again.
                clients[index].isTold = claim.owesLoss || areNodesKilled && client.isTold
                clients[index].hasAnswered = false
                clients[index].held = claim.mark.offset
            }
            clients[index].node = node
            (clients[index].unwrittenAt, clients[index].forgottenBy, clients[index].isLost) = (node, nil, false)
            exchange()
            clients[index].known = clients[index].held
        }

        mutating func acknowledge(_ index: Int, _ count: UInt64) {
            guard let node = clients[index].node, let store = nodes[node].store, let place = clients[index].place else {
                return
            }
            clients[index].ref += 1
            clients[index].acknowledged += count
            clients[index].held = clients[index].acknowledged
            clients[index].hasAnswered = true
            let mark = EventLogPosition(epoch: 1, offset: clients[index].acknowledged)
            let stand = ResumeStore.Stand(
                place: place, mark: mark, lastRef: clients[index].ref, owesLoss: false, heard: 0)
            _ = store.update(mark, of: 0, [stand], now: time.monotonicNanoseconds(), ProjectMetrics())
        }

        mutating func cut(_ index: Int) {
            if let node = clients[index].node { depart(clients[index], from: node) }
            clients[index].node = nil
        }

        /// Makes a node notice the end of a socket whose client has gone to another node.
        mutating func noticeEnd() {
            guard !ends.isEmpty else { return }
            let end = ends.removeFirst()
            if nodes[end.node].number == end.number { depart(end.client, from: end.node) }
        }

        private func depart(_ client: Client, from node: Int) {
            guard let store = nodes[node].store, let place = client.place else { return }
            store.depart(
                place, at: EventLogPosition(epoch: 1, offset: client.held), lastRef: client.ref,
                owesLoss: false, heard: 0, now: time.monotonicNanoseconds())
        }

        /// Exchanges what is not known yet, and writes it to the disks.
        mutating func settle() {
            exchange()
            for node in nodes { node.store?.flush() }
            for index in clients.indices {
                clients[index].known = clients[index].held
                clients[index].unwrittenAt = nil
                if clients[index].hasAnswered, !areNodesKilled { clients[index].isTold = false }
            }
        }
    }

    /// Checks that clients that change nodes are recognized at each, while nodes are killed and start again with what
    /// they had written to their disks.
    @Test(arguments: seeds(100), [false, true])
    func `clients are recognized wherever they come to`(seed: Seed, areNodesKilled: Bool) throws {
        var random = SeededRandom(seed: seed)
        var cluster = try Cluster(areNodesKilled: areNodesKilled)
        for _ in 0..<150 {
            let client = Int(random.next() % 6)
            switch random.next() % 11 {
            case 0:
                // A client that is connected to a node may come to another one before its first node notices.
                if let node = cluster.running.randomElement(using: &random) {
                    try cluster.join(client, at: node)
                }
            case 1, 2, 3:
                guard cluster.clients[client].node == nil else { break }
                if let node = cluster.running.randomElement(using: &random) {
                    try cluster.join(client, at: node)
                }
            case 4, 5: cluster.acknowledge(client, 1 + random.next() % 5)
            case 6: cluster.cut(client)
            case 7: cluster.settle()
            case 9: cluster.noticeEnd()
            case 8:
                guard areNodesKilled, cluster.running.count == 3 else { break }
                cluster.exchange()
                cluster.kill(Int(random.next() % 3))
            default:
                for down in cluster.nodes.indices where !cluster.running.contains(down) { try cluster.start(down) }
            }
        }
    }
}
