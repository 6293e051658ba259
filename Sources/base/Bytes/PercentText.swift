/// Percent-encoding (RFC 3986): converts any text to characters that are safe in a URL or a header, and back.
public enum PercentText {
    public static func encoded(_ text: String) -> String {
        var out: [UInt8] = []
        for byte in text.utf8 {
            switch byte {
            case 0x30...0x39, 0x41...0x5a, 0x61...0x7a, UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"),
                UInt8(ascii: "~"):
                out.append(byte)
            default:
                out.append(UInt8(ascii: "%"))
                out.append(digits[Int(byte >> 4)])
                out.append(digits[Int(byte & 15)])
            }
        }
        return String(decoding: out, as: UTF8.self)
    }

    /// Decodes percent escapes. Characters that are not part of a valid escape stay unchanged.
    public static func decoded(_ text: String) -> String {
        var out: [UInt8] = []
        var rest = Array(text.utf8)[...]
        while let byte = rest.popFirst() {
            let pair = rest.prefix(2)
            guard byte == UInt8(ascii: "%"), pair.count == 2,
                pair.allSatisfy({ Character(UnicodeScalar($0)).isHexDigit }),
                let value = UInt8(String(decoding: pair, as: UTF8.self), radix: 16)
            else {
                out.append(byte)
                continue
            }
            out.append(value)
            rest = rest.dropFirst(2)
        }
        return String(decoding: out, as: UTF8.self)
    }

    private static let digits = Array("0123456789ABCDEF".utf8)
}
