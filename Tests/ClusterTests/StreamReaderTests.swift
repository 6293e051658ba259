import Bytes
import Change
import Replication
import TestSupport
import Testing

@testable import Cluster

/// Tests of the messages of a replicated log, and of the machine that reads them.
@Suite(.within(minutes: 5)) struct StreamReaderTests {
    private static let log = ClusterLogID(high: 7, low: 9)

    private static func head(tenure: UInt64) -> StreamHead {
        StreamHead(
            isFirst: true, isLast: true, log: log, tenure: tenure, epoch: 5, offset: 11, position: LSN(300))
    }

    /// Returns the messages of batches with these sizes, one after the other, all of tenure 1.
    private static func messages(_ sizes: [Int]) -> [[UInt8]] {
        var messages: [[UInt8]] = []
        var chain = ClusterChain()
        for (number, size) in sizes.enumerated() {
            let batch = [UInt8](repeating: UInt8(truncatingIfNeeded: number), count: size)
            var slices = BatchSlices(batch.rawBytes, head(tenure: 1), after: chain)
            while let message = slices.next() {
                messages.append(message)
                var reader = StreamReader(from: StreamMark(log: log, sequence: 0, chain: chain))
                _ = try? reader.take(1, message)
                chain = reader.mark.chain ?? ClusterChain()
            }
        }
        return messages
    }

    private static func read(_ messages: [[UInt8]]) throws -> [StreamBatch] {
        var reader = StreamReader(from: StreamMark(log: log))
        var batches: [StreamBatch] = []
        for (index, message) in messages.enumerated() {
            if let batch = try reader.take(UInt64(index + 1), message) { batches.append(batch) }
        }
        return batches
    }

    @Test func `batches come out as they went in, however many messages they need`() throws {
        let sizes = [0, 1, 200, BatchSlices.sliceBytes, BatchSlices.sliceBytes + 1, 3 * BatchSlices.sliceBytes]
        let messages = Self.messages(sizes)
        #expect(messages.count == 9)
        let batches = try Self.read(messages)
        #expect(batches.map(\.bytes.count) == sizes)
        for (number, batch) in batches.enumerated() { #expect(batch.bytes.allSatisfy { $0 == UInt8(number) }) }
        #expect(batches.map(\.sequence) == [1, 2, 3, 4, 6, 9])
    }

    @Test(arguments: seeds(40))
    func `no bit of any message can change, no message can be missing, doubled or moved without being noticed`(
        seed: Seed
    ) throws {
        var random = SeededRandom(seed: seed)
        let original = Self.messages((0..<6).map { _ in Int.random(in: 0...300, using: &random) })
        var messages = original
        let place = Int.random(in: 0..<messages.count - 1, using: &random)
        switch random.next() % 4 {
        case 0:
            let byte = Int.random(in: 0..<messages[place].count, using: &random)
            messages[place][byte] ^= 1 << UInt8(random.next() % 8)
        case 1: messages.remove(at: place)
        case 2: messages.swapAt(place, place + 1)
        default: messages.insert(messages[place], at: place)
        }
        // Equal neighbours may be swapped and doubled messages removed without a difference.
        guard messages != original else { return }
        #expect(throws: StreamDamage.self) { try Self.read(messages) }
    }

    @Test func `a hole in the sequences is told, and a message that was read before is passed over`() throws {
        let messages = Self.messages([10, 20, 30])
        var reader = StreamReader(from: StreamMark(log: Self.log))
        #expect(try reader.take(1, messages[0]) != nil)
        #expect(try reader.take(1, messages[0]) == nil)
        #expect(throws: StreamDamage.hole(expected: 2, found: 3)) { try reader.take(3, messages[2]) }
        #expect(try reader.take(2, messages[1]) != nil)
        #expect(try reader.take(3, messages[2]) != nil)
    }

    @Test func `a batch that its writer did not finish never happened`() throws {
        let chain = ClusterChain()
        let large = [UInt8](repeating: 1, count: BatchSlices.sliceBytes + 5)
        var slices = BatchSlices(large.rawBytes, Self.head(tenure: 1), after: chain)
        let sliced = slices.next()
        let first = try #require(sliced)
        var reader = StreamReader(from: StreamMark(log: Self.log))
        #expect(try reader.take(1, first) == nil && reader.isInsideBatch)
        let next = StreamMessage.encode(
            Self.head(tenure: 2), [UInt8(9)].rawBytes, after: try #require(reader.mark.chain))
        let batch = try #require(try reader.take(2, next.bytes))
        #expect(batch.bytes == [9] && !reader.isInsideBatch)
    }

    @Test func `a message of another log, or of a tenure that is over, is refused`() throws {
        var reader = StreamReader(from: StreamMark(log: Self.log))
        var foreign = Self.head(tenure: 1)
        foreign.log = ClusterLogID(high: 1, low: 1)
        let stranger = StreamMessage.encode(foreign, [UInt8(1)].rawBytes, after: ClusterChain()).bytes
        #expect(throws: StreamDamage.otherLog(foreign.log)) { try reader.take(1, stranger) }
        let mine = StreamMessage.encode(Self.head(tenure: 1), [UInt8(1)].rawBytes, after: ClusterChain())
        _ = try reader.take(1, mine.bytes)
        let next = StreamMessage.encode(Self.head(tenure: 2), [UInt8(2)].rawBytes, after: mine.chain)
        _ = try reader.take(2, next.bytes)
        let late = StreamMessage.encode(Self.head(tenure: 1), [UInt8(3)].rawBytes, after: next.chain).bytes
        #expect(throws: StreamDamage.staleTenure(found: 1, current: 2)) { try reader.take(3, late) }
    }

    @Test func `every kind of record comes out as it went in`() throws {
        let state = ClusterState(
            isNew: false, system: 3, epoch: 4, offset: 5, position: LSN(6),
            lineage: Lineage(timeline: 1, database: 2, publication: 3),
            messages: FollowedPublication(number: 8, since: LSN(9), offset: 10, time: -11),
            memberships: FollowedMemberships(number: 12, since: LSN(13)), beginning: "slot")
        var batch = BatchBuilder()
        batch.add(progress: LSN(77))
        batch.add(Gap(reason: .slotMissing, from: LSN(1), to: LSN(2)), system: 5, epoch: 6)
        batch.add(beginning: "a slot")
        batch.add(begin: 1, at: LSN(2), after: nil, epoch: 3)
        batch.add(Lineage(timeline: 4, database: 5))
        batch.add(messages: nil)
        batch.add(memberships: state.memberships)
        batch.addAbandon()
        batch.add(tenureOf: "node", state)
        batch.addResigned()
        batch.add(state)
        var names: [String] = []
        let bytes = batch.content.copied()
        var reader = try RecordReader(bytes.rawBytes)
        while let record = try reader.next() {
            switch record {
            case .progress(LSN(77)): names.append("progress")
            case .gap(let gap, 5, 6): names.append("gap \(gap.reason)")
            case .beginning("a slot"): names.append("beginning")
            case .begin(1, LSN(2), nil, 3): names.append("begin")
            case .lineage(let lineage): names.append("lineage \(lineage.timeline)")
            case .messages(nil): names.append("messages")
            case .memberships(let followed): names.append("memberships \(followed?.number ?? 0)")
            case .abandon: names.append("abandon")
            case .tenure("node", let told): names.append(told == state ? "tenure" : "another state")
            case .resigned: names.append("resigned")
            case .state(let told): names.append(told == state ? "state" : "another state")
            default: names.append("?")
            }
        }
        let expected = [
            "progress", "gap slotMissing", "beginning", "begin", "lineage 4", "messages", "memberships 12", "abandon",
            "tenure", "resigned", "state",
        ]
        #expect(names == expected)
        for length in 1..<bytes.count {
            // A shorter batch is refused, or has fewer records; it is never read beyond its end.
            let shorter = Array(bytes.prefix(length))
            var short = try RecordReader(shorter.rawBytes)
            var count = 0
            while (try? short.next()) ?? nil != nil { count += 1 }
            #expect(count < expected.count)
        }
    }

    @Test func `a node stands when the feeder is silent, has resigned, or was itself before a restart`() {
        let second: UInt64 = 1_000_000_000
        var tenure = Tenure(node: "a", number: 0, now: 0)
        #expect(tenure.isDue(at: second, delay: 0))
        tenure.began(4, "b", now: second)
        #expect(!tenure.isDue(at: 2 * second, delay: 0) && tenure.isHeld(at: 2 * second))
        tenure.heard(4, now: 3 * second)
        #expect(!tenure.isDue(at: 5 * second, delay: 0))
        // A sign of an earlier feeder is no sign of life of this one.
        tenure.heard(3, now: 6 * second)
        #expect(tenure.isDue(at: 6 * second, delay: 0) && !tenure.isHeld(at: 6 * second))
        #expect(tenure.isFed(at: 6 * second) && !tenure.isFed(at: 15 * second))
        #expect(!tenure.isDue(at: 6 * second, delay: second))
        tenure.began(9, "a", now: 7 * second)
        #expect(!tenure.isDue(at: 8 * second, delay: 0) && tenure.isDue(at: 9 * second, delay: second))
        tenure.rest(until: 10 * second)
        #expect(!tenure.isDue(at: 9 * second, delay: 0))
        tenure.resigned(now: 10 * second)
        #expect(tenure.isDue(at: 10 * second, delay: 0) && tenure.feeder == nil)
        // The tenure before a restart may still be somebody's.
        var restarted = Tenure(node: "a", number: 4, now: 0)
        #expect(!restarted.isHeld(at: 0))
        #expect(!restarted.isDue(at: second, delay: 0) && restarted.isDue(at: 3 * second, delay: 0))
        restarted.heard(4, now: second)
        #expect(restarted.isHeld(at: 2 * second))
    }
}
