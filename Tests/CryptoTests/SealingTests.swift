import TestSupport
import Testing

@testable import Crypto

@Suite(.within(minutes: 5)) struct SealingTests {
    private static let key = SealingKey(from: Array("a secret".utf8).span, for: "tests")
    private static let place = Array("project/field".utf8)

    private func seal(_ message: [UInt8], _ key: SealingKey = key) -> [UInt8] {
        key.seal(message.span, for: Self.place.span)
    }

    private func open(_ sealed: [UInt8], _ key: SealingKey = key, at place: [UInt8] = place) -> [UInt8]? {
        key.open(sealed.span, for: place.span)
    }

    @Test(arguments: [0, 1, 15, 16, 17, 1000, 100_000])
    func `opens what it sealed`(count: Int) {
        let message = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 7) }
        let sealed = seal(message)
        #expect(sealed.count == count + SealingKey.nonceBytes + SealingKey.tagBytes)
        #expect(open(sealed) == message)
    }

    @Test func `refuses every sealed text with a bit turned or a byte too few`() {
        let sealed = seal(Array("hunter2".utf8))
        for index in sealed.indices {
            for bit in 0..<8 {
                var turned = sealed
                turned[index] ^= 1 << UInt8(bit)
                #expect(open(turned) == nil)
            }
            #expect(open(Array(sealed.prefix(index))) == nil)
        }
        #expect(open(sealed + [0]) == nil)
    }

    @Test func `refuses another key, another purpose and another place`() {
        let sealed = seal(Array("hunter2".utf8))
        #expect(open(sealed, SealingKey(from: Array("a Secret".utf8).span, for: "tests")) == nil)
        #expect(open(sealed, SealingKey(from: Array("a secret".utf8).span, for: "test")) == nil)
        #expect(open(sealed, at: Array("project/other".utf8)) == nil)
        #expect(open(sealed, at: []) == nil)
    }

    @Test func `seals a text the same way each time, and two texts with two nonces`() {
        let sealed = seal(Array("hunter2".utf8))
        #expect(sealed == seal(Array("hunter2".utf8)))
        #expect(sealed.prefix(SealingKey.nonceBytes) != seal(Array("hunter3".utf8)).prefix(SealingKey.nonceBytes))
        #expect(sealed != Self.key.seal(Array("hunter2".utf8).span, for: Array("elsewhere".utf8).span))
    }

    @Test func `shows nothing of the key`() {
        var printed = "\(Self.key)"
        dump(Self.key, to: &printed)
        #expect(printed.count < 60)
    }
}
