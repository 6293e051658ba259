import Crypto

/// Generator of random UUIDs (RFC 9562, version 4) in their usual form.
public enum UUIDText {
    public static func random() -> String {
        var bytes = Secrets.randomBytes(16)
        bytes[6] = bytes[6] & 0x0f | 0x40
        bytes[8] = bytes[8] & 0x3f | 0x80
        let digits = bytes.map { byte in
            let text = String(byte, radix: 16)
            return text.utf8.count == 1 ? "0" + text : text
        }
        return [0..<4, 4..<6, 6..<8, 8..<10, 10..<16].map { digits[$0].joined() }.joined(separator: "-")
    }
}
