/// Limit on how often a channel may push presence: a number of pushes in each window. A window begins with the first
/// push after the last window ended. The limit takes only 8 bytes, because each channel that tracks has one.
public struct PresenceWindow: Sendable, Hashable, BitwiseCopyable {
    /// Begin of the window in milliseconds, shifted left by 16 bits; the lower 16 bits count pushes. Zero before the
    /// first push.
    private var word: UInt64 = 0

    public init() {}

    /// Counts a push. Returns true if it is allowed. `milliseconds` is the time on a clock that never goes back;
    /// `window` is in milliseconds.
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
