import Bytes
import EventLog
import System
import TestSupport
import Testing

/// Tests that compare two readers: one that skips whole segments, and one that reads everything.
@Suite(.within(minutes: 5)) struct PassingOverTests {
    /// Numbers of the tables. A number is the first byte of the table's schema entries, and of its rows' payloads.
    private static let tables: [UInt8] = [1, 2, 3]

    /// Writes long series of entries with few tables and rows, so that segments do not have the others. Sometimes adds
    /// a mark, a gap or a notice.
    static func fill(_ writer: EventLogWriter, _ count: Int, _ random: inout SeededRandom) throws {
        var written: Set<UInt8> = []
        var segment: UInt64 = 0
        var (table, rows): (UInt8, ClosedRange<UInt64>) = (1, 1...4)
        for _ in 0..<count {
            if random.next() % 30 == 0 {
                table = random.pick(tables)
                let first = UInt64.random(in: 1...20, using: &random)
                rows = first...first + 3
            }
            try writer.rollIfNeeded(adding: 300)
            let lsn = writer.appendedLSN + 1
            switch random.next() % 120 {
            case 0: try writer.beginEpoch(lsn: lsn, time: 5, payload: [UInt8](arrayLiteral: 9).span.bytes)
            case 1: try writer.put([], kind: .catalogMark, lsn: lsn)
            case 2: try writer.put([], kind: EntryKind(rawValue: 77), lsn: lsn)
            case 3: try writer.put([], kind: .presence, lsn: lsn)
            default: break
            }
            if writer.segmentSequence != segment {
                segment = writer.segmentSequence
                written = []
            }
            if written.insert(table).inserted { try writer.put([table], kind: .relation, lsn: writer.appendedLSN) }
            let parts = random.next() % 6 == 0 ? 3 : 1
            for part in 1...parts {
                let row = UInt64.random(in: rows, using: &random)
                try writer.put(
                    [table, UInt8(row)] + payload(random.next(), 250), continued: part < parts,
                    lsn: writer.appendedLSN + 1,
                    keys: [key(table, row)])
            }
            if random.next() % 5 == 0 { try writer.flush() }
        }
        try writer.flush()
    }

    static func key(_ table: UInt8, _ row: UInt64) -> UInt64 {
        (UInt64(table) << 32 | row) &* 0x9e37_79b9_7f4a_7c15
    }

    /// Table that a reader wants, as a whole or only one of its rows.
    struct Wish {
        var table: UInt8
        var row: UInt64?

        func isMet(by entry: Seen) -> Bool {
            switch entry.kind {
            case EntryKind.transaction.rawValue:
                entry.payload[0] == table && row.map { entry.payload[1] == UInt8($0) } ?? true
            case EntryKind.gap.rawValue, EntryKind.catalogMark.rawValue, 77: true
            default: false
            }
        }

        func isUseless(_ segment: SealedSegment) -> Bool {
            guard segment.kinds.hasOnly(.transaction, .relation, .progress, .presence) else { return false }
            guard segment.relations.contains([table]) else { return true }
            return row.map { !segment.mayContain(key(table, $0)) } ?? false
        }
    }

    @Test(arguments: seeds(12))
    func `nothing that is wanted is in what is passed over, and the position is behind it`(_ seed: Seed) throws {
        let storage = FaultyStorage()
        let writer = try EventLogWriter(directory: storage, options: testOptions(segmentBytes: 20_000))
        var random = SeededRandom(seed: seed)
        try Self.fill(writer, 900, &random)
        var passedOver = 0
        for _ in 0..<8 {
            let wish = Wish(
                table: random.pick(Self.tables), row: Bool.random(using: &random) ? random.next() % 24 + 1 : nil)
            let start = EventLogStart.offset(UInt64.random(in: 0...writer.nextOffset, using: &random))
            let live = Bool.random(using: &random)
            var plain = try EventLogReader(directory: storage, end: live ? writer.end : nil, from: start)
            let expected = try plain.rest().filter(wish.isMet)
            var reader = try EventLogReader(directory: storage, end: live ? writer.end : nil, from: start)
            var found: [Seen] = []
            var reached: UInt64 = 0
            reading: while true {
                switch try reader.next(passingOver: wish.isUseless) {
                case .none: break reading
                case .passedOver:
                    passedOver += 1
                    #expect(reader.position.offset >= reached)
                    reached = reader.position.offset
                case .entry:
                    if !reader.entry.precedesStart {
                        #expect(reader.entry.offset >= reached, "what was passed over is not shown")
                        if wish.isMet(by: reader.seen) { found.append(reader.seen) }
                    }
                }
            }
            #expect(found == expected)
            #expect(reader.position == plain.position)
        }
        #expect(passedOver > 0)
    }

    @Test func `an index that does not say which kinds its segment has leaves it to be read`() throws {
        let storage = FaultyStorage()
        let writer = try EventLogWriter(directory: storage, options: testOptions(segmentBytes: 20_000))
        _ = try SegmentTests.fill(writer, 200)
        func passed() throws -> Int {
            var reader = try EventLogReader(directory: storage, end: writer.end)
            var count = 0
            while true {
                switch try reader.next(passingOver: { $0.kinds.hasOnly(.transaction, .relation, .progress, .presence) })
                {
                case .none: return count
                case .passedOver: count += 1
                case .entry: break
                }
            }
        }
        #expect(try passed() > 3)
        for name in try storage.names() where name.hasSuffix(".index") {
            var bytes = Array(try #require(storage.bytes(of: name)).dropLast(4))
            // The last word of the summary is zero, as in earlier versions, which did not use it.
            for place in 72..<80 { bytes[place] = 0 }
            var writer = ByteWriter()
            writer.append(bytes)
            writer.append(little: CRC32C.of(bytes.span.bytes))
            storage.setBytes(writer.copied(), of: name)
        }
        #expect(try passed() == 0)
        #expect(try EventLogVerifier.verify(storage).allSatisfy { $0.problems.isEmpty })
    }
}
