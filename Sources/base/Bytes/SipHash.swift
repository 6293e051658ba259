/// SipHash-2-4 (Aumasson and Bernstein, 2012): a 64-bit keyed hash. Without the key, the hash reveals
/// nothing about the message or the key.
public struct SipHash: Sendable {
    private let key: (UInt64, UInt64)

    public init(key: (UInt64, UInt64)) { self.key = key }

    public func hash(_ message: RawSpan) -> UInt64 {
        var state = State(key)
        let whole = message.byteCount & ~7
        var at = 0
        while at < whole {
            state.take(Self.word(message, at, 8))
            at += 8
        }
        let rest = Self.word(message, whole, message.byteCount - whole)
        state.take(rest | UInt64(truncatingIfNeeded: message.byteCount) << 56)
        return state.finish()
    }

    private static func word(_ message: RawSpan, _ start: Int, _ count: Int) -> UInt64 {
        var word: UInt64 = 0
        for index in 0..<count { word |= UInt64(message.byte(start + index)) << UInt64(8 * index) }
        return word
    }

    private struct State {
        private var v0, v1, v2, v3: UInt64

        init(_ key: (UInt64, UInt64)) {
            v0 = key.0 ^ 0x736f_6d65_7073_6575
            v1 = key.1 ^ 0x646f_7261_6e64_6f6d
            v2 = key.0 ^ 0x6c79_6765_6e65_7261
            v3 = key.1 ^ 0x7465_6462_7974_6573
        }

        mutating func take(_ word: UInt64) {
            v3 ^= word
            for _ in 0..<2 { round() }
            v0 ^= word
        }

        mutating func finish() -> UInt64 {
            v2 ^= 0xff
            for _ in 0..<4 { round() }
            return v0 ^ v1 ^ v2 ^ v3
        }

        private mutating func round() {
            v0 &+= v1
            v2 &+= v3
            v1 = Self.turned(v1, 13) ^ v0
            v3 = Self.turned(v3, 16) ^ v2
            v0 = Self.turned(v0, 32)
            v2 &+= v1
            v0 &+= v3
            v1 = Self.turned(v1, 17) ^ v2
            v3 = Self.turned(v3, 21) ^ v0
            v2 = Self.turned(v2, 32)
        }

        private static func turned(_ word: UInt64, _ bits: UInt64) -> UInt64 { word << bits | word >> (64 - bits) }
    }
}
