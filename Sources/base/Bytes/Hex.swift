/// Bytes as pairs of lower-case hexadecimal digits.
public enum Hex {
    @usableFromInline static let digits: StaticString = "0123456789abcdef"

    public static func append(_ bytes: RawSpan, to writer: inout ByteWriter) {
        writer.reserve(bytes.byteCount * 2)
        for offset in 0..<bytes.byteCount {
            let byte = bytes.byte(offset)
            writer.append(digit(byte >> 4))
            writer.append(digit(byte & 15))
        }
    }

    public static func text(_ number: UInt64) -> String {
        let digits = String(number, radix: 16)
        return String(repeating: "0", count: 16 - digits.count) + digits
    }

    @inlinable
    static func digit(_ value: UInt8) -> UInt8 { value < 10 ? 48 &+ value : 87 &+ value }

    @inlinable
    public static func value(_ digit: UInt8) -> UInt8? {
        switch digit {
        case 48...57: digit &- 48
        case 65...70: digit &- 55
        case 97...102: digit &- 87
        default: nil
        }
    }
}

/// Base64 with the alphabet of URLs and without padding, as in tokens (RFC 4648 §5, RFC 7515 §2).
public enum Base64URL {
    private static let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)

    public static func encode(_ bytes: Span<UInt8>) -> String {
        var text: [UInt8] = []
        text.reserveCapacity((bytes.count * 4 + 2) / 3)
        var held: UInt32 = 0
        var bits = 0
        for index in bytes.indices {
            held = held << 8 | UInt32(bytes[index])
            bits += 8
            while bits >= 6 {
                bits -= 6
                text.append(alphabet[Int(held >> UInt32(bits) & 63)])
            }
        }
        if bits > 0 { text.append(alphabet[Int(held << UInt32(6 - bits) & 63)]) }
        return String(decoding: text, as: UTF8.self)
    }

    /// Returns the decoded bytes, or nil for a text that `encode` would not have written.
    public static func decode(_ text: some Sequence<UInt8>) -> [UInt8]? {
        decode(Array(text).span)
    }

    public static func decode(_ text: Span<UInt8>) -> [UInt8]? {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(text.count / 4 * 3 + 2)
        var held: UInt32 = 0
        var bits = 0
        for index in text.indices {
            guard let value = value(of: text[index]) else { return nil }
            held = held << 6 | UInt32(value)
            bits += 6
            if bits >= 8 {
                bits -= 8
                bytes.append(UInt8(truncatingIfNeeded: held >> UInt32(bits)))
            }
        }
        // The remaining bits must be zero and too few for another digit. So each value has exactly one text.
        guard bits < 6, held & (1 << UInt32(bits) - 1) == 0 else { return nil }
        return bytes
    }

    private static func value(of character: UInt8) -> UInt8? {
        switch character {
        case 65...90: character - 65
        case 97...122: character - 71
        case 48...57: character + 4
        case 45: 62
        case 95: 63
        default: nil
        }
    }
}
