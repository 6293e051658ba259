import Bytes
import EventLog
import System
import TestSupport
import Testing

/// Tests of reading the log backwards from a position.
@Suite(.within(minutes: 5)) struct LookbackTests {
    /// Returns the entries before a position, and the sequence numbers of their segments. The entries are in pieces:
    /// the newest piece is first, and each piece is in the order of the log.
    private func all(
        _ outlines: SegmentOutlines, before end: (segment: UInt64, position: UInt64), key: UInt64? = nil
    ) throws -> (stretches: [[UInt64]], segments: [UInt64], relations: Int) {
        var log = try LogLookback(outlines, segment: end.segment, before: end.position)
        var (stretches, segments, relations) = ([[UInt64]](), [UInt64](), 0)
        repeat {
            segments.append(log.segment.sequence)
            relations += log.relations.count
            if let key, !log.mayContain(key) { continue }
            while log.enterStretch() {
                var offsets: [UInt64] = []
                while try log.next() { if log.entry.kind == .transaction { offsets.append(log.entry.offset) } }
                stretches.append(offsets)
            }
        } while try log.enterOlderSegment()
        return (stretches, segments, relations)
    }

    private func place(of offset: UInt64, in directory: any StorageDirectory) throws -> (UInt64, UInt64) {
        var reader = try EventLogReader(directory: directory, from: .offset(offset))
        while try reader.next() {
            if !reader.entry.precedesStart, reader.entry.kind == .transaction, reader.entry.offset == offset {
                return (reader.entry.segment, reader.entry.position + UInt64(reader.entry.header.byteCount))
            }
        }
        throw SystemError(operation: "find", subject: "offset", code: 2)
    }

    @Test(arguments: [UInt64(8) << 20, 64 << 10])
    func `every entry before a place is seen once, the newest first`(segmentBytes: UInt64) throws {
        let directory = try DiskDirectory(TemporaryDirectory.make("lookback"))
        let writer = try EventLogWriter(directory: directory, options: testOptions(segmentBytes: segmentBytes))
        let outlines = SegmentOutlines(directory: directory, maximumBytes: 1 << 20)
        for number in 0..<300 as Range<UInt64> {
            if number % 100 == 0 {
                try writer.put(payload(number, 100), kind: .relation, continued: true, lsn: number + 1)
            }
            try writer.put(payload(number, 15_000), lsn: number + 1, keys: [number])
            if number % 20 == 19 {
                try writer.flush()
                if number != 299 { try writer.rollIfNeeded(adding: 15_000) }
            }
        }
        try writer.flush()
        for last in [0, 77, 250, 299] as [UInt64] {
            let found = try all(outlines, before: place(of: last, in: directory))
            #expect(found.stretches.reversed().flatMap { $0 } == Array(0...last))
            #expect(found.stretches.count > (last == 299 ? 3 : 0))
            #expect(found.segments == (1...(found.segments.first ?? 0)).reversed())
            #expect(found.relations >= Int(last / 100) + 1)
        }
        if segmentBytes < 1 << 20 {
            let found = try all(outlines, before: place(of: 299, in: directory), key: 150)
            #expect(found.stretches.flatMap { $0 }.contains(150))
            #expect(found.stretches.count < found.segments.count / 2)
        }
    }

    /// Checks damage in a segment. A reader that continued past it would take an older version of a row for the last
    /// one.
    @Test(arguments: [true, false])
    func `what does not read of a segment is told, and never left out`(hasIndexes: Bool) throws {
        let storage = FaultyStorage()
        let writer = try EventLogWriter(directory: storage, options: testOptions(segmentBytes: 20_000))
        for number in 0..<60 as Range<UInt64> {
            if try number == 0 || writer.rollIfNeeded(adding: 2_000) {
                try writer.put(payload(number, 100), kind: .relation, lsn: number + 1)
            }
            try writer.put(payload(number, 1_500), lsn: number + 1, keys: [number])
            try writer.flush()
        }
        if !hasIndexes { for name in try storage.names() where name.hasSuffix(".index") { storage.delete(name) } }
        let end = (segment: writer.end.state.segment, position: writer.end.state.segmentBytes)
        func outlines(_ storage: FaultyStorage) -> SegmentOutlines {
            SegmentOutlines(directory: storage, maximumBytes: 1 << 20)
        }
        let whole = try all(outlines(storage), before: end)
        #expect(whole.segments.count > 3 && whole.relations == whole.segments.count)
        var random = SeededRandom(seed: 7)
        for name in try storage.names() where name.hasSuffix(".segment") {
            // Byte 200 is part of the schema; the other one is random.
            let size = try #require(storage.bytes(of: name)).count
            for byte in [200, Int.random(in: 64..<min(size, 1_000), using: &random)] {
                let damaged = storage.copy()
                damaged.flipBit(byte * 8 + 3, in: name)
                #expect(throws: EventLogError.self, "\(name) byte \(byte)") {
                    // The reader reads only the schemas of the segments that it skips.
                    _ = try all(outlines(damaged), before: end, key: byte == 200 ? 1_000_000 : nil)
                }
            }
        }
    }
}
