import Diagnostics

/// Bloom filter over the hashes of keys. It answers "certainly not" or "perhaps".
///
/// All bits of a key are in one block of 512 bits, so that a lookup reads one cache line. With ten bits for each key,
/// about one absent key in a hundred is answered "perhaps".
struct KeyFilter: Sendable, Equatable {
    static let bitsPerKey = 10
    static let bitsSetPerKey = 7
    static let wordsPerBlock = 8

    /// Words of all blocks. If empty, the filter answers "perhaps" for every key.
    private(set) var words: [UInt64]

    static let everything = KeyFilter(words: [])

    init(words: [UInt64]) {
        precondition(words.count % Self.wordsPerBlock == 0, "a filter consists of whole blocks")
        self.words = words
    }

    init(of keys: some Collection<UInt64>) {
        let blocks = max(1, (keys.count * Self.bitsPerKey + 511) / 512)
        words = [UInt64](repeating: 0, count: blocks * Self.wordsPerBlock)
        for key in keys { insert(key) }
    }

    private mutating func insert(_ key: UInt64) {
        let block = block(of: key)
        var bits = Self.scramble(key)
        for _ in 0..<Self.bitsSetPerKey {
            words[block + Int(bits >> 6 & 7)] |= 1 << (bits & 63)
            bits >>= 9
        }
    }

    func mayContain(_ key: UInt64) -> Bool {
        guard !words.isEmpty else { return true }
        let block = block(of: key)
        var bits = Self.scramble(key)
        for _ in 0..<Self.bitsSetPerKey {
            if words[block + Int(bits >> 6 & 7)] & 1 << (bits & 63) == 0 { return false }
            bits >>= 9
        }
        return true
    }

    private func block(of key: UInt64) -> Int {
        // The upper half of the product distributes keys evenly among any number of blocks.
        let spread = (key &* 0x9e37_79b9_7f4a_7c15).multipliedFullWidth(by: UInt64(words.count / Self.wordsPerBlock))
        let block = Int(spread.high) * Self.wordsPerBlock
        assert(block + Self.wordsPerBlock <= words.count, "every block lies within the filter")
        return block
    }

    private static func scramble(_ key: UInt64) -> UInt64 {
        var value = (key ^ key >> 32) &* 0xd6e8_feb8_6659_fd93
        value = (value ^ value >> 32) &* 0xd6e8_feb8_6659_fd93
        return value ^ value >> 32
    }
}

/// Collector of the keys in a segment that is being written. If there are too many, it discards all of them, and its
/// filter matches every key.
struct KeyCollector: Sendable {
    struct Mark: Sendable {
        var count = 0
        var isOverfull = false
    }

    private var keys: [UInt64] = []
    private var isOverfull = false

    var mark: Mark { Mark(count: keys.count, isOverfull: isOverfull) }

    mutating func add(_ added: Span<UInt64>) {
        guard !isOverfull else { return }
        guard keys.count + added.count <= Limits.maximumKeyHashesPerSegment else {
            giveUp()
            return
        }
        for index in added.indices { keys.append(added[index]) }
    }

    mutating func giveUp() {
        isOverfull = true
        keys = []
    }

    mutating func returnTo(_ mark: Mark) {
        // If keys were discarded during an abandoned transaction, they are lost. The filter is still correct but
        // matches every key.
        guard !isOverfull else { return }
        assert(!mark.isOverfull && mark.count <= keys.count, "keys that were dropped do not come back")
        keys.removeSubrange(mark.count...)
    }

    var count: Int { keys.count }

    func filter() -> KeyFilter { isOverfull ? .everything : KeyFilter(of: keys) }

    /// Returns a filter for each stretch of the segment; nil if the keys were discarded. `starts` has the number of
    /// keys before each stretch.
    func stretches(from starts: [Int]) -> KeyStretches? {
        isOverfull ? nil : KeyStretches(of: keys, from: starts)
    }
}
