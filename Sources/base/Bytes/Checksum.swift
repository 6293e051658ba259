import CChecksum

/// CRC-32C, the checksum of everything that the event log stores.
public enum CRC32C {
    /// Returns the checksum of the bytes. To continue a checksum, pass it as `crc`; 0 begins a new one.
    public static func of(_ bytes: RawSpan, continuing crc: UInt32 = 0) -> UInt32 {
        // SAFETY: the C function reads exactly the span's bytes, inside the closure.
        unsafe bytes.withUnsafeBytes { unsafe tw_crc32c(crc, $0.baseAddress, $0.count) }
    }
}

/// Hint to the processor to load memory that will be read soon. The program does other work while the memory is loaded.
public enum Prefetch {
    @inlinable @inline(__always)
    public static func line(at address: UnsafeRawPointer) {
        // SAFETY: a hint to the processor; nothing is read, whatever the address.
        unsafe tw_prefetch(address)
    }
}

/// 64-bit hash for index keys and relation names. Not for secrets: an attacker who chooses
/// the input can cause collisions.
public struct KeyHash: Sendable {
    @usableFromInline var state: UInt64

    @inlinable
    public init(seed: UInt64) { state = seed &* 0x9e37_79b9_7f4a_7c15 ^ 0xd6e8_feb8_6659_fd93 }

    @inlinable
    mutating func mix(_ word: UInt64) {
        let wide = (state ^ word).multipliedFullWidth(by: 0xa076_1d64_78bd_642f)
        state = wide.high ^ wide.low ^ word
    }

    @inlinable
    public mutating func combine(_ number: UInt64) { mix(number) }

    /// Adds the bytes and their length. Because of the length, two neighbouring fields never hash like one joined
    /// field.
    @inlinable
    public mutating func combine(_ bytes: RawSpan) {
        let length = bytes.byteCount
        var at = 0
        while at &+ 8 <= length {
            // SAFETY: `at + 8` is within the span; any bit pattern is a valid integer.
            mix(unsafe bytes.unsafeLoadUnaligned(fromUncheckedByteOffset: at, as: UInt64.self).littleEndian)
            at &+= 8
        }
        var tail: UInt64 = 0
        while at < length {
            // SAFETY: `at` is within the span.
            tail = tail << 8 | UInt64(unsafe bytes.unsafeLoad(fromUncheckedByteOffset: at, as: UInt8.self))
            at &+= 1
        }
        mix(tail)
        mix(UInt64(truncatingIfNeeded: length) | 1 << 63)
    }

    @inlinable
    public var value: UInt64 {
        var result = state
        result ^= result >> 32
        result = result &* 0xd6e8_feb8_6659_fd93
        result ^= result >> 32
        return result
    }
}
