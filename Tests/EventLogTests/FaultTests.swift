import Bytes
import EventLog
import Glibc
import System
import TestSupport
import Testing

private let activeSegment = "0000000001.segment"

@Suite(.within(minutes: 5)) struct FaultTests {
    /// Returns a log of three flushed transactions and a fourth one in two parts. Also returns the entries and the
    /// place of the fourth transaction.
    private func smallLog() throws -> (storage: FaultyStorage, entries: [Seen], lastStart: Int, end: Int) {
        let storage = FaultyStorage()
        let writer = try EventLogWriter(directory: storage, options: testOptions(segmentBytes: 8192))
        var entries: [Seen] = []
        for lsn in 1...3 as ClosedRange<UInt64> {
            entries.append(try writer.put(payload(lsn, 20 + Int(lsn) * 7), lsn: lsn))
            try writer.flush()
        }
        let lastStart = writer.end.state.segmentBytes
        entries.append(try writer.put(payload(8, 33), continued: true, changes: 2, lsn: 4))
        entries.append(try writer.put(payload(9, 61), lsn: 5))
        try writer.flush()
        return (storage, entries, Int(lastStart), Int(writer.end.state.segmentBytes))
    }

    @Test func `cuts a torn write at every byte back to the last whole transaction and writes on`() throws {
        let (storage, entries, lastStart, end) = try smallLog()
        let whole = try #require(storage.bytes(of: activeSegment))
        for length in lastStart..<end {
            let torn = FaultyStorage()
            torn.setBytes(whole.prefix(length) + [UInt8](repeating: 0, count: 8192 - length), of: activeSegment)
            #expect(try readAll(torn) == Array(entries.prefix(3)))
            do {
                let writer = try EventLogWriter(directory: torn, options: testOptions(segmentBytes: 8192))
                #expect(writer.durableLSN == 3 && writer.nextOffset == 3)
                #expect((writer.recovery.cutAt == UInt64(lastStart)) == (length > lastStart))
                let next = try writer.put(payload(50, 12), changes: 4, lsn: 6)
                try writer.flush()
                #expect(try readAll(torn, end: writer.end) == entries.prefix(3) + [next])
            }
            let reopened = try EventLogWriter(directory: torn, options: testOptions(segmentBytes: 8192))
            #expect(reopened.nextOffset == 7 && reopened.recovery.cutAt == nil)
        }
    }

    @Test func `notices every flipped bit, and tells damage from a torn tail`() throws {
        let (storage, entries, lastStart, end) = try smallLog()
        let whole = try #require(storage.bytes(of: activeSegment))
        // The last entry confirms everything before the last flush. Nothing confirms that flush itself.
        for bit in 0..<end * 8 {
            let flipped = FaultyStorage()
            flipped.setBytes(whole, of: activeSegment)
            flipped.flipBit(bit, in: activeSegment)
            let report = try EventLogVerifier.verify(flipped)[0]
            if bit / 8 < lastStart {
                #expect(throws: EventLogError.self) {
                    try EventLogWriter(directory: flipped, options: testOptions(segmentBytes: 8192))
                }
                guard case .damaged = report.problems.first else {
                    Issue.record("bit \(bit) is not reported as damage: \(report.problems)")
                    continue
                }
                #expect(throws: EventLogError.self) { try readAll(flipped) }
                #expect(flipped.bytes(of: activeSegment)?.count == whole.count)
            } else {
                #expect(report.problems == [.tornTail(position: UInt64(lastStart), bytes: UInt64(end - lastStart))])
                #expect(try readAll(flipped) == Array(entries.prefix(3)))
            }
        }
    }

    @Test func `publishes nothing when a sync fails, and the next flush makes it good`() throws {
        for failing in 0..<2 {
            let storage = FaultyStorage()
            let writer = try EventLogWriter(directory: storage, options: testOptions())
            let first = try writer.put([1], lsn: 1)
            try writer.flush()
            let before = writer.end.state
            let second = try writer.put(payload(2, 9000), lsn: 2)
            storage.setFaults { faults in
                if failing == 0 { faults.failSyncAfter = 0 } else { faults.failWriteAfter = 0 }
                faults.tornBytes = 5000
                faults.times = 3
            }
            for _ in 0..<3 {
                let failure = #expect(throws: EventLogFailure.self) { try writer.flush() }
                #expect(failure?.code == EIO)
                #expect(writer.end.state == before && writer.durableLSN == 1)
                #expect(try readAll(storage, end: writer.end) == [first])
            }
            let third = try writer.put([3], lsn: 3)
            try writer.flush()
            #expect(try readAll(storage, end: writer.end) == [first, second, third])
            // A sync alone would have succeeded without an effect, because the kernel had already dropped the pages.
            var random = SeededRandom(seed: 4)
            storage.powerCut(&random)
            #expect(try readAll(storage) == [first, second, third])
        }
    }

    @Test func `waits out a full disk without losing or corrupting anything`() throws {
        let storage = FaultyStorage()
        let writer = try EventLogWriter(directory: storage, options: testOptions(segmentBytes: 4096))
        var entries: [Seen] = []
        var lsn: UInt64 = 0
        func append() throws {
            lsn += 1
            entries.append(try writer.put(payload(lsn, 700), lsn: lsn))
        }
        try append()
        try writer.flush()
        storage.setFaults { $0.capacity = 9000 }
        var durable = 0
        #expect(throws: EventLogFailure.self) {
            for _ in 0..<100 {
                if writer.willRoll(adding: 700) { try writer.rollIfNeeded(adding: 700) }
                try append()
                try writer.flush()
                durable = entries.count
            }
        }
        #expect(durable > 3 && durable < 20)
        let published = try readAll(storage, end: writer.end)
        #expect(published == Array(entries.prefix(published.count)) && published.count >= durable)
        for _ in 0..<5 { #expect(throws: EventLogFailure.self) { try writer.flushOrRoll() } }
        storage.setFaults { $0.capacity = nil }
        try writer.flushOrRoll()
        try append()
        try writer.flush()
        #expect(try readAll(storage, end: writer.end) == entries)
        #expect(try readAll(storage) == entries)
        for report in try EventLogVerifier.verify(storage) { #expect(report.problems.isEmpty) }
    }

    @Test func `says that an entry was not taken when memory is full and the disk fails`() throws {
        let storage = FaultyStorage()
        let writer = try EventLogWriter(directory: storage, options: testOptions())
        let part = payload(1, 1 << 20)
        var taken: [Seen] = []
        storage.setFaults { faults in
            faults.failSyncAfter = 0
            faults.times = 2
        }
        var refused = 0
        while taken.count < 10 {
            do {
                taken.append(try writer.put(part, continued: taken.count < 9, lsn: UInt64(taken.count + 1)))
            } catch {
                refused += 1
                #expect(writer.nextOffset == UInt64(taken.count))
            }
        }
        #expect(refused == 2)
        try writer.flush()
        #expect(try readAll(storage, end: writer.end) == taken)
    }
}

extension EventLogWriter {
    /// Flushes again, and begins a new segment if needed, as a caller does after the disk was full.
    func flushOrRoll() throws(EventLogFailure) {
        try flush()
        if willRoll(adding: 700) { try rollIfNeeded(adding: 700) }
    }
}
