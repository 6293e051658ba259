/// Mask of a frame's payload: XOR with four repeated bytes (RFC 6455 §5.3). The same operation masks and unmasks.
enum Mask {
    /// Masks the range in place, eight bytes at a time. `phase` is the range's offset in the payload.
    static func apply(_ mask: UInt32, to bytes: inout MutableRawSpan, in range: Range<Int>, phase: Int) {
        precondition(range.lowerBound >= 0 && range.upperBound <= bytes.byteCount, "only bytes at hand are masked")
        guard !range.isEmpty else { return }
        let turned = rotated(mask, by: phase)
        let word = UInt64(turned) << 32 | UInt64(turned)
        // SAFETY: every load and store lies within `range`, which the precondition keeps inside the buffer, and the
        // buffer is not used outside the closure.
        unsafe bytes.withUnsafeMutableBytes { buffer in
            guard let base = buffer.baseAddress else { return }
            var at = range.lowerBound
            while at &+ 8 <= range.upperBound {
                let masked = unsafe base.loadUnaligned(fromByteOffset: at, as: UInt64.self).littleEndian
                unsafe base.storeBytes(of: (masked ^ word).littleEndian, toByteOffset: at, as: UInt64.self)
                at &+= 8
            }
            var rest = word
            while at < range.upperBound {
                let masked = unsafe base.load(fromByteOffset: at, as: UInt8.self)
                unsafe base.storeBytes(
                    of: masked ^ UInt8(truncatingIfNeeded: rest), toByteOffset: at, as: UInt8.self)
                rest >>= 8
                at &+= 1
            }
        }
    }

    /// Returns the mask rotated for payload offset `phase`. The first mask byte is the lowest.
    private static func rotated(_ mask: UInt32, by phase: Int) -> UInt32 {
        let bits = UInt32(truncatingIfNeeded: phase & 3) * 8
        return bits == 0 ? mask : mask >> bits | mask << (32 - bits)
    }
}
