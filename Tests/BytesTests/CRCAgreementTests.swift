import Bytes
import CChecksum
import TestSupport
import Testing

@Suite(.within(minutes: 5)) struct CRCAgreementTests {
    @Test func `the processor's instruction and the table agree at every length and seam`() {
        let bytes = (0..<40_000).map { UInt8(truncatingIfNeeded: ($0 &* 2_654_435_761) >> 7) }
        let lengths = Array(0..<900) + [12_287, 12_288, 12_289, 24_576, 24_577, 39_999]
        for length in lengths {
            let part = Array(bytes[0..<length])
            let table = part.withUnsafeBytes { tw_crc32c_portable(0, $0.baseAddress, $0.count) }
            #expect(CRC32C.of(part.span.bytes) == table, "length \(length)")
            let half = length / 2
            let first = CRC32C.of(Array(part[0..<half]).span.bytes)
            #expect(CRC32C.of(Array(part[half...]).span.bytes, continuing: first) == table)
        }
    }
}
