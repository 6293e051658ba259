/// Limit on how often a channel may push presence: a number of pushes in a window. A window begins with the first push,
/// and again with the first push after the window is over. The limit takes one word, because every channel that tracks
/// has one.
public struct PresenceWindow: Sendable, Hashable, BitwiseCopyable {
    /// Begin of the window in milliseconds, above 16 bits that count pushes; zero before the first push.
    private var word: UInt64 = 0

    public init() {}

    /// Counts a push. True if it is allowed. The clock is in milliseconds and does not go back.
    public mutating func admit(at milliseconds: UInt64, maximum: Int, window: UInt64) -> Bool {
        let now = milliseconds & 0xffff_ffff_ffff
        let begin = word >> 16
        let count = word & 0xffff
        guard count > 0, now >= begin, now - begin < window else {
            word = now << 16 | 1
            return maximum > 0
        }
        word = begin << 16 | min(count + 1, 0xffff)
        return count < UInt64(clamping: maximum)
    }
}
