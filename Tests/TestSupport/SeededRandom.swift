#if canImport(Glibc)
    import Glibc
#endif

/// SplitMix64: the same numbers from the same seed, everywhere.
public struct SeededRandom: RandomNumberGenerator, Sendable {
    private var state: UInt64

    public init(seed: UInt64) { state = seed }

    public mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var value = state
        value = (value ^ value >> 30) &* 0xbf58_476d_1ce4_e5b9
        value = (value ^ value >> 27) &* 0x94d0_49bb_1331_11eb
        return value ^ value >> 31
    }

    /// One of several; there must be one.
    public mutating func pick<Choice>(_ choices: [Choice]) -> Choice {
        choices[Int.random(in: 0..<choices.count, using: &self)]
    }
}

/// The seeds a seeded test runs with: those of this run, or the one of `SEED=… swift test`.
public func seeds(_ count: Int) -> [UInt64] {
    if let text = getenv("SEED"), let seed = UInt64(String(cString: text)) { return [seed] }
    return (1...UInt64(count)).map { $0 }
}
