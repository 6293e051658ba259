/// Random generator (SplitMix64) that makes the same choices for the same seed on every machine.
struct VerifyChance: RandomNumberGenerator, Sendable {
    private var state: UInt64

    /// Creates a generator. Each lane gives an independent sequence of random choices for the same seed.
    init(_ seed: UInt64, lane: UInt64) {
        state = seed &* 0x9e37_79b9_7f4a_7c15 ^ lane &* 0xd134_2543_de82_ef95
        _ = next()
    }

    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var mixed = state
        mixed = (mixed ^ mixed >> 30) &* 0xbf58_476d_1ce4_e5b9
        mixed = (mixed ^ mixed >> 27) &* 0x94d0_49bb_1331_11eb
        return mixed ^ mixed >> 31
    }

    mutating func number(_ range: ClosedRange<Int>) -> Int { Int.random(in: range, using: &self) }

    /// Returns true with the probability 1/`count`.
    mutating func once(in count: Int) -> Bool { number(1...count) == 1 }

    mutating func pick<Element>(_ elements: [Element]) -> Element {
        elements[number(0...elements.count - 1)]
    }
}
