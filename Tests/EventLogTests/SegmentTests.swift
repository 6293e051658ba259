import EventLog
import Synchronization
import System
import TestSupport
import Testing

@Suite(.within(minutes: 5)) struct SegmentTests {
    /// Writes a log of several segments. Each begins with its schema entry, as callers must write it.
    static func fill(
        _ writer: EventLogWriter, _ count: Int, seed: Seed = 1, keys: Bool = false, rolling: Bool = true
    ) throws -> [Seen] {
        var random = SeededRandom(seed: seed)
        var entries: [Seen] = []
        for _ in 0..<count {
            let size = Int.random(in: 0...900, using: &random)
            if rolling { try writer.rollIfNeeded(adding: size) }
            let lsn = writer.appendedLSN + UInt64.random(in: 0...3, using: &random)
            // Commits may arrive late: times increase, but sometimes go back a little.
            let time = Int64(lsn) * 10 - Int64.random(in: 0...60, using: &random)
            if writer.isAtSegmentStart {
                entries.append(try writer.put([7], kind: .relation, lsn: writer.appendedLSN, time: time))
            }
            let kind: EntryKind = Int.random(in: 0..<8, using: &random) == 0 ? .progress : .transaction
            let parts = kind == .transaction && Int.random(in: 0..<5, using: &random) == 0 ? 3 : 1
            for part in 1...parts {
                entries.append(
                    try writer.put(
                        payload(random.next(), size), kind: kind, continued: part < parts,
                        changes: UInt32.random(in: 1...3, using: &random), lsn: lsn, time: time,
                        keys: keys ? [UInt64(writer.nextOffset)] : []))
            }
            if Int.random(in: 0..<5, using: &random) == 0 { try writer.flush() }
        }
        try writer.flush()
        return entries
    }

    @Test func `rolls, and readers go from segment to segment`() throws {
        let storage = FaultyStorage()
        var expected: [Seen] = []
        do {
            let writer = try EventLogWriter(directory: storage, options: testOptions(segmentBytes: 20_000))
            expected = try Self.fill(writer, 300)
            #expect(writer.segmentSequence > 5)
            #expect(try readAll(storage, end: writer.end) == expected)
        }
        #expect(try readAll(storage) == expected)
        let writer = try EventLogWriter(directory: storage, options: testOptions(segmentBytes: 20_000))
        expected += try Self.fill(writer, 100, seed: 2)
        #expect(try readAll(storage, end: writer.end) == expected)
        let summaries = try EventLogReader.segments(in: storage)
        #expect(summaries == writer.segments)
        #expect(summaries.reduce(0) { $0 + $1.entries } == UInt64(expected.count))
        #expect(try EventLogVerifier.verify(storage).allSatisfy { $0.problems.isEmpty })
    }

    @Test func `prepares the next segment in the background on a real disk`() throws {
        try withTemporaryDirectory { path in
            let directory = try DiskDirectory(path)
            var options = testOptions(segmentBytes: 200_000)
            options.preparesSegments = true
            var expected: [Seen] = []
            do {
                let writer = try EventLogWriter(directory: directory, options: options)
                expected = try Self.fill(writer, 2000)
                #expect(try readAll(directory, end: writer.end) == expected)
            }
            let writer = try EventLogWriter(directory: directory, options: options)
            #expect(try readAll(directory, end: writer.end) == expected)
            #expect(try EventLogVerifier.verify(directory).allSatisfy { $0.problems.isEmpty })
        }
    }

    @Test func `deletes the oldest segments by age and size, and tells readers`() throws {
        let storage = FaultyStorage()
        var options = testOptions(segmentBytes: 20_000)
        options.retentionAge = .seconds(10)
        options.retentionBytes = 60_000
        let writer = try EventLogWriter(directory: storage, options: options)
        var standing = try EventLogReader(directory: storage, end: writer.end)
        let expected = try Self.fill(writer, 400)
        _ = try standing.next()
        let deleted = try writer.enforceRetention(now: 0)
        #expect(deleted.count > 2)
        #expect(writer.segments.reduce(0) { $0 + $1.bytes } <= 60_000)
        let oldest = try #require(writer.segments.first).firstOffset
        #expect(throws: EventLogError.outsideRetention(oldest: oldest)) { while try standing.next() {} }
        #expect(throws: EventLogError.outsideRetention(oldest: oldest)) {
            try readAll(storage, from: .offset(oldest - 1))
        }
        #expect(try readAll(storage) == expected.filter { $0.offset >= oldest }.suffix(readAll(storage).count))
        _ = try writer.enforceRetention(now: .max)
        #expect(writer.segments.count == 1)
        #expect(try storage.names().filter { $0.hasSuffix(".index") }.isEmpty)
    }

    /// Checks retention while segments are replaced. Otherwise a deleted segment would return as its copy, followed by
    /// a hole.
    @Test func `nothing is deleted while segments are replaced`() throws {
        let storage = FaultyStorage()
        var options = testOptions(segmentBytes: 20_000)
        options.retentionBytes = 60_000
        let writer = try EventLogWriter(directory: storage, options: options)
        _ = try Self.fill(writer, 400)
        let before = writer.segments.count
        try { () throws in
            let alone = try storage.lock("erasure.lock")
            #expect(try writer.enforceRetention(now: 0).isEmpty && writer.segments.count == before)
            #expect(throws: EventLogError.self) { try EventLogErasure.writeDown([Self.patch(1)], in: storage) }
            withExtendedLifetime(alone) {}
        }()
        #expect(try !writer.enforceRetention(now: 0).isEmpty)
    }

    /// Returns a patch that replaces an entry by a single byte.
    private static func patch(_ segment: UInt64) -> EntryPatch {
        EntryPatch(segment: segment, entry: 128, at: 0, byteCount: 1, bytes: [7])
    }

    @Test func `what is written down is taken out beside the writer, and who reads the segment goes on`() throws {
        let storage = FaultyStorage()
        let writer = try EventLogWriter(directory: storage, options: testOptions(segmentBytes: 20_000))
        let expected = try Self.fill(writer, 400)
        var standing = try EventLogReader(directory: storage, end: writer.end)
        #expect(try standing.next())
        let first = standing.seen
        try EventLogErasure.writeDown([Self.patch(1)], in: storage)
        // A second erasure is refused until the first is finished. Otherwise the recorded patches would be lost.
        #expect(throws: EventLogError.self) { try EventLogErasure.writeDown([Self.patch(2)], in: storage) }
        #expect(try EventLogVerifier.hasUnfinishedErasure(storage))
        #expect(try EventLogErasure.finishBesideWriter(storage, options: testOptions()) == 1)
        #expect(try !EventLogVerifier.hasUnfinishedErasure(storage))
        #expect(try EventLogErasure.finishBesideWriter(storage, options: testOptions()) == 0)
        // The writer and the reader continue. Each entry appears once, in its place.
        try writer.put([1], lsn: 1_000_000)
        try writer.flush()
        var seen = [first]
        while try standing.next() { seen.append(standing.seen) }
        #expect(seen.dropLast() == expected[...])
        // Checksums are right, and nothing else has changed.
        let now = try readAll(storage)
        #expect(now.count == expected.count + 1)
        #expect(Array(now.dropFirst().dropLast()) == Array(expected.dropFirst()))
        #expect(try EventLogVerifier.verify(storage).allSatisfy { $0.problems.isEmpty })
    }

    @Test func `a commit time that has not come yet does not keep its segment until then`() throws {
        var options = testOptions()
        options.retentionAge = .seconds(10)
        let writer = try EventLogWriter(directory: FaultyStorage(), options: options)
        // The test's clock is at 1 s.
        try writer.put([1], lsn: 1, time: 900_000)
        try writer.put([1], lsn: 2, time: 4_000_000_000_000_000)
        try writer.flush()
        try writer.roll()
        try writer.put([1], lsn: 3, time: 1_000_000)
        try writer.flush()
        #expect(try writer.enforceRetention(now: 10_999_999).isEmpty)
        #expect(try writer.enforceRetention(now: 11_000_001).map(\.sequence) == [1])
    }

    @Test func `begins a new epoch with a gap, and the LSN may go back`() throws {
        let storage = FaultyStorage()
        var expected: [Seen] = []
        do {
            let writer = try EventLogWriter(directory: storage, options: testOptions())
            expected.append(try writer.put([1], changes: 5, lsn: 1000))
            try writer.put([1], continued: true, lsn: 1001)
            try writer.beginEpoch(lsn: 10, time: 77, payload: [UInt8](arrayLiteral: 6, 6).span.bytes)
            expected.append(
                Seen(kind: 4, continued: false, changes: 0, offset: 5, lsn: 10, time: 77, payload: [6, 6]))
            #expect(writer.epoch == 8 && writer.durableLSN == 10 && writer.nextOffset == 5)
            #expect(writer.end.state.position == EventLogPosition(epoch: 8, offset: 5))
            expected.append(try writer.put([2], lsn: 11))
            try writer.flush()
            #expect(try readAll(storage, end: writer.end) == expected)
        }
        #expect(try readAll(storage) == expected)
        let writer = try EventLogWriter(directory: storage, options: testOptions(epoch: 100))
        #expect(writer.epoch == 8 && writer.nextOffset == 6 && writer.durableLSN == 11)
        var reader = try EventLogReader(directory: storage)
        var epochs: [UInt64] = []
        while try reader.next() { epochs.append(reader.entry.epoch) }
        #expect(epochs == [7, 8, 8])
    }

    @Test func `makes a missing or broken index again, keys included`() throws {
        for broken in [false, true] {
            let storage = FaultyStorage()
            var options = testOptions(segmentBytes: 20_000)
            var expected: [Seen] = []
            do {
                let writer = try EventLogWriter(directory: storage, options: options)
                expected = try Self.fill(writer, 100)
            }
            let whole = try #require(storage.bytes(of: "0000000002.index"))
            if broken { storage.flipBit(300, in: "0000000002.index") } else { storage.delete("0000000002.index") }
            #expect(try readAll(storage, from: .offset(60)).last == expected.last)
            #expect(try EventLogVerifier.verify(storage)[1].problems == [.badIndex])
            options.keysOf = { _, _ in [] }
            let writer = try EventLogWriter(directory: storage, options: options)
            #expect(storage.bytes(of: "0000000002.index") == whole)
            #expect(try readAll(storage, end: writer.end) == expected)
        }
    }

    @Test func `passes over segments without the key and never over one with it`() throws {
        let storage = FaultyStorage()
        let writer = try EventLogWriter(directory: storage, options: testOptions(segmentBytes: 20_000))
        let expected = try Self.fill(writer, 800, keys: true)
        var entriesRead = 0
        for wanted in expected where wanted.kind == 1 {
            var reader = try EventLogReader(directory: storage, end: writer.end, matchingKey: wanted.offset)
            var found = false
            while try reader.next() {
                entriesRead += 1
                if reader.seen == wanted { found = true }
            }
            #expect(found)
        }
        #expect(entriesRead < expected.count * expected.count / 4)
    }

    @Test func `reports a missing segment, a discontinuity and damage, and repairs torn tails only`() throws {
        let storage = FaultyStorage()
        do {
            let writer = try EventLogWriter(directory: storage, options: testOptions(segmentBytes: 20_000))
            _ = try Self.fill(writer, 300)
            // An unconfirmed entry is written before a crash.
            try writer.put([1], continued: true, lsn: writer.appendedLSN)
            try writer.flush()
        }
        let torn = storage.copy()
        let before = try EventLogVerifier.verify(torn)
        guard case .tornTail(_, 49) = before.last?.problems.first else {
            Issue.record("no torn tail: \(before.last?.problems ?? [])")
            return
        }
        let repaired = try EventLogVerifier.repair(torn)
        #expect(repaired.cutBytes == 49)
        #expect(try EventLogVerifier.verify(torn).allSatisfy { $0.problems.isEmpty })

        let holed = storage.copy()
        holed.delete("0000000003.segment")
        #expect(try EventLogVerifier.verify(holed)[2].problems == [.missingSegment])
        #expect(throws: EventLogError.self) {
            try EventLogWriter(directory: holed, options: testOptions(segmentBytes: 20_000))
        }

        let damaged = storage.copy()
        damaged.flipBit(8 * 5000, in: "0000000002.segment")
        guard case .damaged = try EventLogVerifier.verify(damaged)[1].problems.first else {
            Issue.record("damage in a sealed segment was not found")
            return
        }
        let bytes = damaged.bytes(of: "0000000002.segment")
        _ = try EventLogVerifier.repair(damaged)
        #expect(damaged.bytes(of: "0000000002.segment") == bytes)
        #expect(throws: EventLogError.self) { try readAll(damaged) }
    }
}
