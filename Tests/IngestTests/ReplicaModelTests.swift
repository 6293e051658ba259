import Bytes
import Change
import Cluster
import Diagnostics
import EventLog
import Replication
import System
import TestSupport
import Testing

@testable import Ingest

/// Tests of several nodes with real logs, which share a model of the stream and follow a model of PostgreSQL.
///
/// A schedule by seed lets nodes read late, lose acknowledgements, stand for the slot at once, hold it without knowing
/// that it is another's, crash with and without a power cut, and end in the middle of a transaction. At the end every
/// log must have each commit once, in order, at the same offset.
@Suite(.within(minutes: 10)) struct ReplicaModelTests {
    /// Transaction of the model of PostgreSQL.
    private struct Commit {
        var xid: UInt32
        var start: LSN
        var end: LSN
        var parts: Int
    }

    /// Model of PostgreSQL: its commits, and the position that was confirmed.
    private final class Source {
        var commits: [Commit] = []
        var current = LSN(1_000)
        var confirmed = LSN(1_000)

        func commit(_ random: inout SeededRandom) {
            let start = LSN(current.rawValue + UInt64.random(in: 8...64, using: &random))
            let end = LSN(start.rawValue + 32)
            commits.append(
                Commit(
                    xid: UInt32(commits.count + 1), start: start, end: end,
                    parts: random.next() % 4 == 0 ? Int.random(in: 2...5, using: &random) : 1))
            current = end
        }
    }

    /// Model of the stream: a message is stored only behind the expected one.
    private final class Stream {
        let log = ClusterLogID(high: 1, low: 2)
        private(set) var messages: [[UInt8]] = []

        func append(_ message: [UInt8], after expected: UInt64) -> Bool {
            guard UInt64(messages.count) == expected else { return false }
            messages.append(message)
            return true
        }
    }

    private enum Fate { case stored, neverArrived, acknowledgementLost, endsInTheMiddle }

    /// Writer that loses messages and acknowledgements.
    private final class Writer: StreamWriter {
        private let stream: Stream
        var fate = Fate.stored
        private var outcome: StreamOutcome?

        init(_ stream: Stream) { self.stream = stream }

        var isWaiting: Bool { outcome != nil }
        var unacknowledgedBytes: Int { 0 }
        func pulse(tenure: UInt64, sequence: UInt64, covered: LSN, now: UInt64) {}
        func rival(of tenure: UInt64) -> String? { nil }

        func append(
            _ batch: borrowing BatchBuilder, _ head: StreamHead, after sequence: UInt64, _ chain: ClusterChain
        ) throws(NatsFailure) {
            var slices = BatchSlices(batch.content, head, after: chain)
            var stored: [StoredMessage] = []
            var last = sequence
            while let message = slices.next() {
                if fate == .neverArrived || fate == .endsInTheMiddle && !stored.isEmpty { break }
                guard stream.append(message, after: last) else {
                    outcome = .lost("another node has appended")
                    return
                }
                last += 1
                stored.append(StoredMessage(sequence: last, bytes: message))
            }
            outcome = fate == .stored ? .stored(stored) : .lost("no acknowledgement")
        }

        func settle(within nanoseconds: UInt64) -> StreamOutcome {
            defer { outcome = nil }
            return outcome ?? .waiting
        }
    }

    /// Node with a log on a disk of its own.
    private final class Node {
        let name: String
        let storage = FaultyStorage()
        let stream: Stream
        let writer: Writer
        private(set) var replica: Replica
        var sink: StreamSink?

        /// - Parameter first: sequence of the first message that the stream still has for a node without a log.
        init(_ name: String, _ stream: Stream, from first: UInt64 = 1) throws {
            self.name = name
            self.stream = stream
            writer = Writer(stream)
            let start = StreamMark(log: stream.log, sequence: first - 1, chain: first == 1 ? ClusterChain() : nil)
            replica = try Self.replica(name, storage, Self.log(storage), start)
        }

        private static func log(_ storage: FaultyStorage) throws -> LogSink {
            var options = EventLogOptions(source: 0)
            options.preparesSegments = false
            options.segmentBytes = 16 << 10
            options.retentionAge = nil
            return try LogSink(directory: storage, options: options)
        }

        private static func replica(
            _ name: String, _ storage: FaultyStorage, _ log: LogSink, _ start: StreamMark
        ) throws -> Replica {
            var (mark, end) = (start, StreamEnd.unknown)
            if case .whole(let known, let told) = try ReplicaFile(directory: storage).read() {
                (mark, end) = (known, told)
            }
            let replica = Replica(
                log: log, from: mark, at: end, tenure: Tenure(node: name, number: mark.tenure, now: 0),
                directory: storage,
                coverage: StreamCoverage(), messages: StreamCoverage(publication: StreamCoverage.messages))
            try replica.removeUnfinished()
            return replica
        }

        /// Reads so many messages of the stream, if it does not hold the slot.
        func follow(_ count: Int) throws {
            guard sink == nil else { return }
            for _ in 0..<count {
                let next = replica.reader.next
                guard next <= UInt64(stream.messages.count) else { break }
                try replica.take(next, stream.messages[Int(next) - 1])
                try replica.apply(now: 0)
            }
            try replica.flush(now: UInt64(stream.messages.count) * 1_000_000_000)
            if replica.reader.mark.sequence == UInt64(stream.messages.count) { try replica.checkEnd() }
        }

        func stand() throws {
            guard sink == nil, replica.reader.mark.sequence == UInt64(stream.messages.count) else { return }
            var batch = BatchBuilder()
            batch.add(tenureOf: name, replica.state)
            let number = replica.reader.next
            guard try replica.append(batch, by: writer, tenure: number) else { return }
            replica.isFeeding = true
            sink = StreamSink(replica, writer, tenure: number, pause: StreamPause())
        }

        func stepDown() {
            sink = nil
            replica.isFeeding = false
        }

        /// Ends the process and starts it again, after a power cut if there is a seed.
        func crash(powerCut: Bool, _ random: inout SeededRandom) throws {
            stepDown()
            if powerCut { storage.powerCut(&random) } else { storage.processDied() }
            replica = try Self.replica(name, storage, Self.log(storage), StreamMark(log: stream.log))
        }

        /// Connects to the servers again, and begins to read where its file says, with the same log.
        func reconnect() throws {
            stepDown()
            replica = try Self.replica(name, storage, replica.log, StreamMark(log: stream.log))
        }
    }

    private static func send(_ commit: Commit, _ part: Int, to sink: StreamSink) throws {
        var info = TransactionInfo(
            xid: commit.xid, commitLSN: commit.start, endLSN: .zero, commitTime: Int64(commit.xid))
        let isLast = part == commit.parts - 1
        if isLast { info.endLSN = commit.end }
        var payload = ByteWriter()
        TransactionCodec.begin(info, firstIndex: UInt32(part), to: &payload)
        TransactionCodec.append(
            .message, relation: 0, oldImage: .none, old: [UInt8(1)].rawBytes,
            new: [UInt8](repeating: UInt8(truncatingIfNeeded: part), count: 300).rawBytes, to: &payload)
        TransactionCodec.finish(endLSN: info.endLSN, changeCount: 1, in: &payload)
        try sink.append(
            StorablePart(
                info: info, isLast: isLast, changeCount: 1, payload: payload.bytes, schemas: [],
                keys: [RowKey.transaction(xid: commit.xid)]))
    }

    /// Streams commits to a node that believes to hold the slot. Returns false if its tenure has ended.
    private static func stream(
        _ source: Source, to node: Node, _ random: inout SeededRandom, fails: Bool = true
    ) throws -> Bool {
        guard let sink = node.sink else { return true }
        do {
            if sink.isNew { try sink.begin(systemIdentifier: 7, at: source.confirmed) }
            let start = max(source.confirmed, sink.position)
            for commit in source.commits where commit.end > start {
                for part in 0..<commit.parts {
                    try send(commit, part, to: sink)
                    let kind = random.next() % 16
                    if kind == 0 || kind < 8 && part < commit.parts - 1 { try sink.flush() }
                    if fails, kind == 9, part < commit.parts - 1 {
                        // The connection to PostgreSQL broke within the transaction.
                        try sink.abandon()
                        return true
                    }
                }
                if fails, random.next() % 8 == 0 { node.writer.fate = random.pick(fates) }
                if random.next() % 3 == 0 { try confirm(sink, source) }
            }
            if random.next() % 2 == 0 { try sink.advance(to: source.current) }
            try confirm(sink, source)
            return true
        } catch is TenureLost {
            return false
        }
    }

    private static let fates: [Fate] = [.stored, .stored, .neverArrived, .acknowledgementLost, .endsInTheMiddle]

    private static func confirm(_ sink: StreamSink, _ source: Source) throws {
        if sink.position.rawValue % 3 == 0 { source.confirmed = max(source.confirmed, sink.durablePosition) }
        try sink.flush()
        source.confirmed = max(source.confirmed, sink.durablePosition)
    }

    /// Returns offset and transaction of each change of a node's log.
    private static func history(_ node: Node) throws -> [String] {
        guard let place = node.replica.log.appended else { return [] }
        var reader = try EventLogReader(directory: node.storage, end: nil, from: .oldest)
        var lines = ["epoch \(Hex.text(place.epoch))"]
        while try reader.next() {
            guard reader.entry.kind == .transaction else { continue }
            let part = try TransactionPart(reader.payload)
            lines.append("\(reader.entry.offset) xid \(part.xid) change \(part.firstIndex)")
        }
        return lines
    }

    @Test(arguments: seeds(60)) func `every log has each commit once, in order, at the same offset`(seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let source = Source()
        let stream = Stream()
        let nodes = try (1...3).map { try Node("node-\($0)", stream) }
        for _ in 0..<120 {
            let node = random.pick(nodes)
            switch random.next() % 12 {
            case 0...2: source.commit(&random)
            case 3...5: try node.follow(Int.random(in: 1...6, using: &random))
            case 6:
                node.writer.fate = random.pick(Self.fates)
                try node.follow(.max)
                try node.stand()
                node.writer.fate = .stored
            case 7: try node.crash(powerCut: random.next() % 2 == 0, &random)
            case 8: try node.reconnect()
            default:
                if try !Self.stream(source, to: node, &random) { node.stepDown() }
                node.writer.fate = .stored
            }
        }
        for node in nodes {
            node.stepDown()
            node.writer.fate = .stored
            try node.crash(powerCut: false, &random)
        }
        source.commit(&random)
        try nodes[0].follow(.max)
        try nodes[0].stand()
        #expect(try Self.stream(source, to: nodes[0], &random, fails: false))
        #expect(nodes[0].replica.log.position >= source.commits.last?.end ?? .zero)
        for node in nodes.dropFirst() { try node.follow(.max) }
        let histories = try nodes.map { try Self.history($0) }
        let expected = source.commits.flatMap { commit in
            (0..<commit.parts).map { "xid \(commit.xid) change \($0)" }
        }
        #expect(histories[0].dropFirst().map { $0.drop { $0 != " " }.dropFirst() }.map(String.init) == expected)
        #expect(histories[1] == histories[0] && histories[2] == histories[0])
        // A node that begins with what retention has left of the stream has the same from the next state on.
        let first = UInt64.random(in: 1...UInt64(stream.messages.count), using: &random)
        let late = try Node("late", stream, from: first)
        try late.follow(.max)
        let suffix = try Self.history(late).dropFirst()
        #expect(suffix.elementsEqual(histories[0].dropFirst().suffix(suffix.count)))
        #expect(late.replica.log.isNew || late.replica.log.appended == nodes[0].replica.log.appended)
    }
}
