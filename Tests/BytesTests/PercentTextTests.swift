import Bytes
import TestSupport
import Testing

@Suite(.within(minutes: 1)) struct PercentTextTests {
    @Test(arguments: seeds(20)) func `any text comes back`(seed: Seed) {
        var random = SeededRandom(seed: seed)
        for _ in 0..<100 {
            let scalars = (0..<Int.random(in: 0...20, using: &random)).compactMap { _ in
                UnicodeScalar(UInt32.random(in: 0...0x2000, using: &random))
            }
            let text = String(String.UnicodeScalarView(scalars))
            let encoded = PercentText.encoded(text)
            #expect(PercentText.decoded(encoded) == text)
            #expect(encoded.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f && $0 != UInt8(ascii: "&") })
        }
    }

    @Test func `what is no escape stays`() {
        #expect(PercentText.decoded("100%") == "100%" && PercentText.decoded("%zz%4") == "%zz%4")
        #expect(PercentText.encoded("a b&c=ü") == "a%20b%26c%3D%C3%BC")
    }
}
