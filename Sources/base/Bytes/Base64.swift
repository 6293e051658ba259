/// Base64 with the usual alphabet and with padding (RFC 4648 §4).
public enum Base64 {
    private static let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)

    public static func encode(_ bytes: Span<UInt8>) -> String {
        var text: [UInt8] = []
        text.reserveCapacity((bytes.count + 2) / 3 * 4)
        var held: UInt32 = 0
        var bits: UInt32 = 0
        for index in bytes.indices {
            held = held << 8 | UInt32(bytes[index])
            bits += 8
            while bits >= 6 {
                bits -= 6
                text.append(alphabet[Int(held >> bits & 63)])
            }
        }
        if bits > 0 { text.append(alphabet[Int(held << (6 - bits) & 63)]) }
        while text.count % 4 != 0 { text.append(UInt8(ascii: "=")) }
        return String(decoding: text, as: UTF8.self)
    }

    public static func isDigit(_ byte: UInt8) -> Bool {
        switch byte {
        case 65...90, 97...122, 47...57, 43: true
        default: false
        }
    }
}
