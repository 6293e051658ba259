import Diagnostics
import EventLog
import System
import TestSupport
import Testing

@Suite(.within(minutes: 5)) struct TransactionTests {
    @Test func `forgets an abandoned transaction, in memory and on disk`() throws {
        for flushed in [false, true] {
            let storage = FaultyStorage()
            var expected: [Seen] = []
            do {
                let writer = try EventLogWriter(directory: storage, options: testOptions())
                expected.append(try writer.put([1], lsn: 1))
                for part in 0..<3 { try writer.put(payload(UInt64(part), 100), continued: true, changes: 9, lsn: 2) }
                if flushed { try writer.flush() }
                writer.abandonTransaction()
                #expect(writer.nextOffset == 1 && !writer.isInsideTransaction)
                // This entry has the size of the first abandoned part. So the second abandoned part would seem to
                // follow it.
                expected.append(try writer.put(payload(7, 100), changes: 9, lsn: 2))
                try writer.flush()
                #expect(try readAll(storage, end: writer.end) == expected)
            }
            #expect(try readAll(storage) == expected)
            let writer = try EventLogWriter(directory: storage, options: testOptions())
            #expect(writer.recovery.cutAt == nil && writer.nextOffset == 10)
        }
    }

    @Test func `cuts a transaction that a crash left unfinished`() throws {
        let storage = FaultyStorage()
        var expected: [Seen] = []
        do {
            let writer = try EventLogWriter(directory: storage, options: testOptions())
            expected.append(try writer.put([1], lsn: 1))
            for part in 0..<3 { try writer.put(payload(UInt64(part), 100), continued: true, changes: 9, lsn: 2) }
            try writer.flush()
        }
        let writer = try EventLogWriter(directory: storage, options: testOptions())
        #expect(writer.recovery.cutBytes == 3 * 148 && writer.durableLSN == 1)
        expected.append(try writer.put(payload(9, 100), lsn: 2))
        try writer.flush()
        #expect(try readAll(storage) == expected)
    }

    @Test func `keeps a transaction larger than memory and segment in one segment`() throws {
        let storage = FaultyStorage()
        let writer = try EventLogWriter(directory: storage, options: testOptions(segmentBytes: 1 << 20))
        var expected = [try writer.put([1], lsn: 1)]
        try writer.flush()
        var largest = 0
        for part in 1...12 {
            expected.append(try writer.put(payload(UInt64(part), 1 << 20), continued: part < 12, lsn: 2))
            largest = max(largest, writer.pendingBytes)
            #expect(!writer.willRoll(adding: 1 << 20) || part == 12)
        }
        #expect(largest <= Limits.flushBatchBytes)
        #expect(try readAll(storage, end: writer.end) == [expected[0]])
        #expect(try readAll(storage) == [expected[0]])
        try writer.flush()
        #expect(writer.segmentSequence == 1)
        #expect(try readAll(storage) == expected)
        // The transaction is abandoned when most of it has already reached the file.
        for part in 1...9 { try writer.put(payload(UInt64(part), 1 << 20), continued: true, lsn: 3) }
        writer.abandonTransaction()
        expected.append(try writer.put([4], lsn: 3))
        try writer.flush()
        #expect(try readAll(storage, end: writer.end) == expected)
    }

    /// Checks the open segment and a sealed one, with and without the writer's end. The reader must stop after the last
    /// undamaged transaction.
    @Test(arguments: seeds(60)) func `shows no part of a transaction of which another part is damaged`(
        seed: Seed
    ) throws {
        var random = SeededRandom(seed: seed)
        let storage = FaultyStorage()
        let writer = try EventLogWriter(directory: storage, options: testOptions(segmentBytes: 8192))
        var lsn: UInt64 = 0
        for _ in 0..<Int.random(in: 3...30, using: &random) {
            let parts = Int.random(in: 1...4, using: &random)
            try writer.rollIfNeeded(adding: 4000)
            for part in 1...parts {
                lsn += part == parts ? 10 : 0
                try writer.put(
                    payload(lsn + UInt64(part), Int.random(in: 0...900, using: &random)), continued: part < parts,
                    lsn: lsn)
            }
            try writer.flush()
        }
        let whole = try readAll(storage, end: writer.end)
        let segments = writer.segments
        for _ in 0..<20 {
            let segment = random.pick(segments)
            let damaged = storage.copy()
            damaged.flipBit(Int.random(in: 128 * 8..<Int(segment.bytes) * 8, using: &random), in: file(segment))
            for end in [writer.end, nil] {
                var reader = try EventLogReader(directory: damaged, end: end)
                var shown: [Seen] = []
                do { while try reader.next() { shown.append(reader.seen) } } catch EventLogError.damaged {}
                #expect(shown == Array(whole.prefix(shown.count)))
                #expect(shown.last?.continued != true, "the last part shown is \(shown.last?.description ?? "")")
                if end != nil { #expect(shown.count < whole.count) }
            }
        }
    }

    private func file(_ segment: SegmentSummary) -> String {
        let digits = String(segment.sequence)
        return String(repeating: "0", count: 10 - digits.count) + digits + ".segment"
    }

    @Test func `returns entries of kinds it does not know`() throws {
        let storage = FaultyStorage()
        let writer = try EventLogWriter(directory: storage, options: testOptions())
        var expected: [Seen] = []
        for kind in [2, 3, 4, 16, 17, 200, 255] as [UInt8] {
            expected.append(try writer.put([kind], kind: EntryKind(rawValue: kind), lsn: 1))
        }
        try writer.flush()
        #expect(try readAll(storage) == expected)
    }

    @Test func `refuses a second writer and another source`() throws {
        let storage = FaultyStorage()
        do {
            let writer = try EventLogWriter(directory: storage, options: testOptions())
            #expect(throws: EventLogError.lockedElsewhere(path: "/memory", processID: 42)) {
                try EventLogWriter(directory: storage, options: testOptions())
            }
            #expect(throws: EventLogError.self) { try EventLogVerifier.repair(storage) }
            withExtendedLifetime(writer) {}
        }
        #expect(throws: EventLogError.foreignSource(expected: 5, found: 99)) {
            try EventLogWriter(directory: storage, options: EventLogOptions(source: 5))
        }
    }
}
