import Diagnostics
import EventLog
import System
import TestSupport
import Testing

@Suite(.within(minutes: 5)) struct LossTests {
    /// Returns a log with several segments of a few transactions each, in parts.
    private func filled(_ random: inout SeededRandom) throws -> (storage: FaultyStorage, segments: [SegmentSummary]) {
        let storage = FaultyStorage()
        let writer = try EventLogWriter(directory: storage, options: testOptions(segmentBytes: 6000))
        for lsn in 1...UInt64.random(in: 5...60, using: &random) {
            try writer.rollIfNeeded(adding: 1500)
            let parts = Int.random(in: 1...3, using: &random)
            for part in 1...parts {
                try writer.put(payload(lsn, 300), continued: part < parts, lsn: lsn)
            }
            try writer.flush()
        }
        return (storage, writer.segments)
    }

    private func file(_ sequence: UInt64) -> String {
        let digits = String(sequence)
        return String(repeating: "0", count: 10 - digits.count) + digits + ".segment"
    }

    private func damage(_ storage: FaultyStorage, _ segments: [SegmentSummary], _ random: inout SeededRandom) {
        for _ in 0..<Int.random(in: 1...2, using: &random) {
            let segment = random.pick(segments)
            switch Int.random(in: 0...5, using: &random) {
            case 0: storage.delete(file(segment.sequence))
            case 1: storage.flipBit(Int.random(in: 0..<128 * 8, using: &random), in: file(segment.sequence))
            default:
                storage.flipBit(Int.random(in: 0..<Int(segment.bytes) * 8, using: &random), in: file(segment.sequence))
            }
        }
    }

    /// Checks any loss of files or bytes. Afterwards the log must open, be undamaged, and have only old entries. If the
    /// repair gave up published entries, the log must continue in another epoch. The files that were given up must
    /// still exist under another name.
    @Test(arguments: seeds(200)) func `a damaged log goes on, and nobody takes it for the one that it was`(
        seed: Seed
    ) throws {
        var random = SeededRandom(seed: seed)
        let (storage, segments) = try filled(&random)
        let before = try readAll(storage)
        let end = try #require(segments.last)
        damage(storage, segments, &random)
        let aside = FaultyStorage()
        let names = Set(try storage.names())
        // A directory without segments is not a log.
        guard names.contains(where: { $0.hasSuffix(".segment") }) else { return }
        let salvage = try EventLogSalvage(storage)
        guard let loss = salvage.loss else { return }
        try salvage.perform(options: testOptions(epoch: 50), gap: { _ in [6] }) { (name) throws(SystemError) in
            aside.setBytes(storage.bytes(of: name) ?? [], of: name)
            storage.delete(name)
        }
        storage.processDied()
        #expect(Set(try aside.names() + storage.names()).isSuperset(of: names.filter { $0.hasSuffix(".segment") }))
        guard loss.oldestOffset != nil else {
            #expect(try storage.names().allSatisfy { !$0.hasSuffix(".segment") })
            return
        }
        #expect(try EventLogVerifier.verify(storage).allSatisfy { !$0.isDamaged })
        let left = try readAll(storage)
        #expect(left.filter { $0.kind != EntryKind.gap.rawValue }.allSatisfy(before.contains))
        #expect(left.first { $0.kind == 1 }.map { $0.offset == 0 || before.contains($0) } ?? true)
        let after = try EventLogWriter(directory: storage, options: testOptions(segmentBytes: 6000, epoch: 90))
        // The offsets after the cut are used again, in an epoch that no client knows yet.
        #expect(loss.cut == nil || after.epoch == 50)
        #expect(loss.cut != nil || after.epoch == end.epoch)
    }

    /// Checks a copy that a shell makes of `log/*.segment` during transactions: first the names, then one file after
    /// another.
    @Test(arguments: seeds(40)) func `segments copied in their order are a log, though it was written meanwhile`(
        seed: Seed
    ) throws {
        var random = SeededRandom(seed: seed)
        let storage = FaultyStorage()
        let writer = try EventLogWriter(directory: storage, options: testOptions(segmentBytes: 6000))
        func commit() throws {
            let lsn = writer.appendedLSN + 1
            try writer.rollIfNeeded(adding: 1500)
            let parts = Int.random(in: 1...3, using: &random)
            for part in 1...parts {
                try writer.put(payload(lsn, 300), continued: part < parts, lsn: part == parts ? lsn : lsn - 1)
                if Bool.random(using: &random) { try writer.flush() }
            }
            try writer.flush()
        }
        for _ in 0..<30 { try commit() }
        let before = try readAll(storage)
        let copy = FaultyStorage()
        for name in try storage.names().filter({ $0.hasSuffix(".segment") }).sorted() {
            copy.setBytes(storage.bytes(of: name) ?? [], of: name)
            for _ in 0..<Int.random(in: 0...6, using: &random) { try commit() }
        }
        _ = try EventLogVerifier.repair(copy)
        #expect(try EventLogVerifier.verify(copy).allSatisfy { !$0.isDamaged })
        let copied = try readAll(copy)
        #expect(copied.count >= before.count)
        #expect(try copied == Array(readAll(storage).prefix(copied.count)))
    }

    @Test func `a whole log has nothing to give up, and one that is written is left alone`() throws {
        var random = SeededRandom(seed: 1)
        let (storage, _) = try filled(&random)
        do { #expect(try EventLogSalvage(storage).loss == nil) }
        let writer = try EventLogWriter(directory: storage, options: testOptions())
        #expect(throws: EventLogError.self) { _ = try EventLogSalvage(storage) }
        withExtendedLifetime(writer) {}
    }
}
