import TestSupport
import Testing

@testable import Bytes

@Suite(.within(minutes: 5)) struct SipHashTests {
    /// Checks the first of the authors' own test vectors, and those around the lengths at which a word is full.
    @Test(
        arguments: [
            (0, 0x726f_db47_dd0e_0e31), (1, 0x74f8_39c5_93dc_67fd), (7, 0xab02_00f5_8b01_d137),
            (8, 0x93f5_f579_9a93_2462),
            (15, 0xa129_ca61_49be_45e5),
        ] as [(UInt8, UInt64)])
    func `hashes as its authors do`(length: UInt8, expected: UInt64) {
        let hash = SipHash(key: (0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908))
        let message = Array(0..<length)
        #expect(hash.hash(message.span.bytes) == expected)
    }
}
