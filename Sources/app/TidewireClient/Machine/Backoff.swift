/// Delays between attempts to connect or to join. They are short at first and grow with each failure. A random part
/// keeps clients from retrying simultaneously.
struct Backoff: Sendable {
    static let first = Duration.milliseconds(400)
    static let longest = Duration.seconds(30)

    /// Returns the delay before retry number `attempt`, counted from 1. The first delay is below half a second; no
    /// delay exceeds 30 seconds.
    static func delay(attempt: Int, chance: inout Chance) -> Duration {
        let full = min(first * (1 << min(max(attempt - 1, 0), 10)), longest)
        return full * (0.5 + chance.fraction() / 2)
    }
}

/// Random numbers from a seed, so that a test can repeat a sequence of events exactly (SplitMix64).
struct Chance: RandomNumberGenerator, Sendable {
    private var state: UInt64

    init(seed: UInt64) { state = seed }

    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var mixed = (state ^ state >> 30) &* 0xbf58_476d_1ce4_e5b9
        mixed = (mixed ^ mixed >> 27) &* 0x94d0_49bb_1331_11eb
        return mixed ^ mixed >> 31
    }

    /// Returns a number from 0 to less than 1.
    mutating func fraction() -> Double { Double(next() >> 11) * 0x1p-53 }
}
