import Bytes
import EventLog
import System
import TestSupport
import Testing

/// Tests that compare two readers: one that skips parts of segments without its keys, and one that reads everything.
@Suite(.within(minutes: 5)) struct KeyStretchesTests {
    private static let kinds = 60

    /// Writes random transactions. The first byte of an entry is one of its keys, and the key of an earlier schema.
    private static func fill(_ writer: EventLogWriter, _ count: Int, _ random: inout SeededRandom) throws {
        var known: Set<UInt8> = []
        var segment: UInt64 = 0
        for _ in 0..<count {
            try writer.rollIfNeeded(adding: 4_000)
            if random.next() % 150 == 0 {
                try writer.beginEpoch(
                    lsn: writer.appendedLSN + 1, time: 5, payload: [UInt8](arrayLiteral: 9).span.bytes)
            }
            if writer.segmentSequence != segment {
                segment = writer.segmentSequence
                known = []
            }
            let parts = random.next() % 8 == 0 ? 3 : 1
            for part in 1...parts {
                // A schema also appears within a transaction, before its first use.
                let kind = UInt8(random.next() % UInt64(kinds))
                if known.insert(kind).inserted {
                    try writer.put([kind], kind: .relation, continued: part > 1, lsn: writer.appendedLSN)
                }
                try writer.put(
                    [kind] + payload(random.next(), Int.random(in: 0...4_000, using: &random)),
                    continued: part < parts, lsn: writer.appendedLSN + 1, keys: [key(kind), key(200)])
            }
            if random.next() % 20 == 0 {
                try writer.put([1], continued: true, lsn: writer.appendedLSN, keys: [key(1)])
                writer.abandonTransaction()
            }
            if random.next() % 5 == 0 { try writer.flush() }
        }
        try writer.flush()
    }

    private static func key(_ kind: UInt8) -> UInt64 { (UInt64(kind) + 1) &* 0x9e37_79b9_7f4a_7c15 }

    private static func isAbout(_ kind: UInt8, _ entry: Seen) -> Bool {
        entry.kind == EntryKind.gap.rawValue
            || entry.kind == EntryKind.transaction.rawValue && entry.payload[0] == kind
    }

    @Test(arguments: seeds(10))
    func `all that has the key is given, its schemas before it, and little else`(_ seed: Seed) throws {
        let storage = FaultyStorage()
        let writer = try EventLogWriter(directory: storage, options: testOptions(segmentBytes: 1_000_000))
        var random = SeededRandom(seed: seed)
        try Self.fill(writer, 2_000, &random)
        #expect(try storage.names().contains { $0.hasSuffix(".keys") })
        var (given, all) = (0, 0)
        for _ in 0..<10 {
            let kind = UInt8(random.next() % UInt64(Self.kinds))
            let start = EventLogStart.offset(UInt64.random(in: 0...writer.nextOffset, using: &random))
            let live = Bool.random(using: &random)
            var plain = try EventLogReader(directory: storage, end: live ? writer.end : nil, from: start)
            let rest = try plain.rest()
            var reader = try EventLogReader(
                directory: storage, end: live ? writer.end : nil, from: start, matchingAnyOf: [Self.key(kind)])
            var found: [Seen] = []
            var known: Set<UInt8> = []
            var segment: UInt64 = 0
            while try reader.next() {
                if reader.entry.segment != segment { known = [] }
                segment = reader.entry.segment
                if reader.entry.kind == .relation { known.insert(reader.seen.payload[0]) }
                if reader.entry.kind == .transaction {
                    #expect(known.contains(reader.seen.payload[0]), "what is given comes behind its schema")
                }
                if !reader.entry.precedesStart { found.append(reader.seen) }
            }
            #expect(found.filter { Self.isAbout(kind, $0) } == rest.filter { Self.isAbout(kind, $0) })
            #expect(reader.position == plain.position)
            given += found.count
            all += rest.count
        }
        #expect(given * 4 < all * 3)
    }

    @Test(arguments: seeds(4))
    func `a key that is looked for from within a stretch is found in the next ones`(_ seed: Seed) throws {
        let storage = FaultyStorage()
        let writer = try EventLogWriter(directory: storage, options: testOptions(segmentBytes: 1_000_000))
        var random = SeededRandom(seed: seed)
        try Self.fill(writer, 1_000, &random)
        let (first, second) = (UInt8(3), UInt8(17))
        let all = try readAll(storage)
        let turn = try #require(all.first { Self.isAbout(first, $0) && $0.kind == EntryKind.transaction.rawValue })
        var reader = try EventLogReader(directory: storage, matchingAnyOf: [Self.key(first)])
        var found: [Seen] = []
        while try reader.next() {
            if reader.seen == turn { reader.alsoMatch(Self.key(second)) }
            if reader.entry.kind == .transaction { found.append(reader.seen) }
        }
        // Entries in the same part of a segment may or may not be returned. All later ones must be.
        let behind = all.filter { $0.kind == EntryKind.transaction.rawValue && $0.offset > turn.offset + 200 }
        #expect(behind.filter { Self.isAbout(second, $0) }.allSatisfy(found.contains))
        #expect(!behind.filter { Self.isAbout(second, $0) }.isEmpty)
    }

    @Test func `without them, or with others than its own, a segment is read whole`() throws {
        let storage = FaultyStorage()
        let writer = try EventLogWriter(directory: storage, options: testOptions(segmentBytes: 1_000_000))
        var random = SeededRandom(seed: 5)
        try Self.fill(writer, 1_200, &random)
        func shown() throws -> Int {
            var reader = try EventLogReader(directory: storage, matchingAnyOf: [Self.key(5)])
            return try reader.rest().count
        }
        let few = try shown()
        let names = try storage.names().filter { $0.hasSuffix(".keys") }.sorted()
        try #require(names.count > 2)
        let whole = try names.map { try #require(storage.bytes(of: $0)) }
        storage.flipBit(300, in: names[0])
        storage.setBytes(whole[0], of: names[1])
        storage.setBytes(Array(whole[2].dropLast(9)), of: names[2])
        let more = try shown()
        #expect(more > few)
        for name in names { storage.delete(name) }
        #expect(try shown() > more)
        #expect(try EventLogVerifier.verify(storage).allSatisfy { $0.problems.isEmpty })
    }

    @Test func `they go with their segments`() throws {
        let storage = FaultyStorage()
        var options = testOptions(segmentBytes: 200_000)
        options.retentionBytes = 500_000
        do {
            let writer = try EventLogWriter(directory: storage, options: options)
            var random = SeededRandom(seed: 6)
            try Self.fill(writer, 800, &random)
            #expect(try !writer.enforceRetention(now: 1_000_000).isEmpty)
        }
        func numbers(_ suffix: String) throws -> [String] {
            try storage.names().filter { $0.hasSuffix(suffix) }.map { String($0.dropLast(suffix.count)) }.sorted()
        }
        #expect(try numbers(".keys") == numbers(".segment").dropLast())
        // This file remained after a crash between the two steps.
        storage.setBytes([1], of: "0000000001.keys")
        _ = try EventLogWriter(directory: storage, options: options)
        #expect(try numbers(".keys") == numbers(".segment").dropLast())
    }
}
