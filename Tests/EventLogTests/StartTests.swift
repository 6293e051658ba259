import EventLog
import System
import TestSupport
import Testing

@Suite(.within(minutes: 5)) struct StartTests {
    /// Expected results of each kind of start, computed from the list of all transactions.
    private struct Model {
        let transactions: [[Seen]]

        init(_ entries: [Seen]) {
            var transactions: [[Seen]] = [[]]
            for entry in entries {
                transactions[transactions.count - 1].append(entry)
                if !entry.continued { transactions.append([]) }
            }
            self.transactions = transactions.filter { !$0.isEmpty }
        }

        func from(_ isWanted: ([Seen]) -> Bool) -> [Seen] {
            transactions.drop { !isWanted($0) }.flatMap { $0 }
        }

        func expected(_ start: EventLogStart) -> [Seen] {
            switch start {
            case .oldest: from { _ in true }
            case .end: []
            case .offset(let offset):
                from { $0[0].offset >= offset || $0[$0.count - 1].offset + UInt64($0[$0.count - 1].changes) > offset }
            case .lsn(let lsn): from { $0[$0.count - 1].lsn >= lsn }
            case .time(let time): from { $0.contains { $0.time >= time } }
            case .behindSegment: preconditionFailure("the model knows no segments")
            }
        }
    }

    @Test(arguments: seeds(12))
    func `starts where a plain search would, with the schema before it`(_ seed: Seed) throws {
        let storage = FaultyStorage()
        let writer = try EventLogWriter(directory: storage, options: testOptions(segmentBytes: 300_000))
        let entries = try SegmentTests.fill(writer, 2500, seed: seed)
        let model = Model(entries)
        var random = SeededRandom(seed: seed)
        for _ in 0..<40 {
            let start: EventLogStart =
                switch Int.random(in: 0..<4, using: &random) {
                case 0: .offset(UInt64.random(in: 0...writer.nextOffset + 2, using: &random))
                case 1: .lsn(UInt64.random(in: 0...writer.durableLSN + 2, using: &random))
                case 2: .time(Int64.random(in: -100...Int64(writer.durableLSN) * 10, using: &random))
                default: .end
                }
            let live = Bool.random(using: &random)
            var reader = try EventLogReader(directory: storage, end: live ? writer.end : nil, from: start)
            var found: [Seen] = []
            var schema: [UInt64] = []
            while try reader.next() {
                if reader.entry.precedesStart {
                    #expect(reader.entry.kind == .relation)
                    schema.append(reader.entry.segment)
                } else {
                    if found.isEmpty, reader.entry.kind != .relation { #expect(schema == [reader.entry.segment]) }
                    found.append(reader.seen)
                }
            }
            #expect(found == model.expected(start), "seed \(seed), \(start)")
        }
    }

    @Test func `behind a segment whose header does not read the next one is read`() throws {
        let storage = FaultyStorage()
        let writer = try EventLogWriter(directory: storage, options: testOptions(segmentBytes: 300_000))
        _ = try SegmentTests.fill(writer, 2500, seed: 1)
        var entries: [(segment: UInt64, seen: Seen)] = []
        var reader = try EventLogReader(directory: storage)
        while try reader.next() { entries.append((reader.entry.segment, reader.seen)) }
        let segments = writer.segments
        try #require(segments.count > 4)
        func name(_ sequence: UInt64) -> String { String("\(10_000_000_000 + sequence)".dropFirst()) + ".segment" }
        for segment in segments.dropLast() {
            let rest = entries.filter { $0.segment > segment.sequence }.map(\.seen)
            let damaged = storage.copy()
            damaged.flipBit(40, in: name(segment.sequence))
            #expect(try readAll(damaged, from: .behindSegment(segment.sequence)) == rest)
        }
        let last = segments[segments.count - 1].sequence
        #expect(throws: EventLogError.self) { try readAll(storage, from: .behindSegment(last)) }
        // A reader that begins in an undamaged part must not fail because of damage in another part.
        storage.flipBit(40, in: name(1))
        let beginning = try EventLogReader.beginning(in: storage, end: writer.end)
        #expect(beginning.offset == segments[1].firstOffset && beginning.isBehindDamage)
    }
}
