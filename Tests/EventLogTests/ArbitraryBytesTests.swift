import Bytes
import EventLog
import TestSupport
import Testing

@Suite(.within(minutes: 5)) struct ArbitraryBytesTests {
    @Test(arguments: seeds(150))
    func `answers or refuses arbitrary bytes, and never crashes`(_ seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        fuzzSegment(payload(seed.number, Int.random(in: 0...6000, using: &random)))
        var bytes = plausibleEntries(&random)
        fuzzSegment(bytes)
        for _ in 0..<3 {
            mutate(&bytes, &random)
            fuzzSegment(bytes)
        }
    }

    /// Returns entries in order that are valid except for their checksums.
    private func plausibleEntries(_ random: inout SeededRandom) -> [UInt8] {
        var writer = ByteWriter()
        var (offset, lsn) = (5 as UInt64, 6 as UInt64)
        for _ in 0..<Int.random(in: 1...20, using: &random) {
            let size = Int.random(in: 0...600, using: &random)
            let changes = random.pick([0, 1, 3, UInt32.max])
            lsn += UInt64.random(in: 0...2, using: &random)
            writer.append(little: UInt32(size))
            writer.append(little: UInt32(1))
            writer.append(random.pick([1, 2, 3, 77] as [UInt8]))
            writer.append(Bool.random(using: &random) ? 1 : 0 as UInt8)
            writer.append(little: 0 as UInt16)
            writer.append(little: changes)
            writer.append(little: offset)
            writer.append(little: lsn)
            writer.append(little: random.next())
            writer.append(little: UInt64.random(in: 0...UInt64(128 + writer.count), using: &random))
            writer.append(payload(random.next(), size))
            offset += UInt64(changes)
        }
        return writer.copied()
    }

    private func mutate(_ bytes: inout [UInt8], _ random: inout SeededRandom) {
        let at = Int.random(in: 0..<bytes.count, using: &random)
        switch Int.random(in: 0..<4, using: &random) {
        case 0: bytes[at] = UInt8.random(in: 0...255, using: &random)
        case 1: bytes.removeSubrange(at..<min(bytes.count, at + 50))
        case 2: bytes.append(contentsOf: bytes[at...])
        default: for index in at..<min(bytes.count, at + 500) { bytes[index] = 0 }
        }
        if bytes.isEmpty { bytes = [0] }
    }
}
