import Crypto

/// Seed of a NATS user's nkey: an Ed25519 key in base32, with a prefix that names its kind and a checksum.
struct NkeySeed {
    /// Public key, in the form in which a NATS server's configuration names the user.
    let publicKey: String

    /// Parses a user's seed, `SU…`; nil if the text is none.
    init?(_ text: String) {
        guard text.hasPrefix("SU"), let bytes = Base32.decoded(text), bytes.count == 36 else { return nil }
        // Two bytes of prefix, 32 of the seed, two of the checksum.
        let sum = UInt16(bytes[34]) | UInt16(bytes[35]) << 8
        guard Self.checksum(bytes[..<34]) == sum, let key = Ed25519.publicKey(ofSeed: Array(bytes[2..<34])) else {
            return nil
        }
        var encoded = [Self.userPrefix] + key
        let keySum = Self.checksum(encoded[...])
        encoded += [UInt8(truncatingIfNeeded: keySum), UInt8(truncatingIfNeeded: keySum >> 8)]
        publicKey = Base32.encoded(encoded)
    }

    /// First byte of a user's public key: the letter U in base32.
    private static let userPrefix: UInt8 = 20 << 3

    /// CRC-16 with the polynomial of XMODEM.
    private static func checksum(_ bytes: ArraySlice<UInt8>) -> UInt16 {
        bytes.reduce(0) { sum, byte in
            (0..<8).reduce(sum ^ UInt16(byte) << 8) { value, _ in
                value & 0x8000 == 0 ? value << 1 : value << 1 ^ 0x1021
            }
        }
    }
}

/// Base32 without padding (RFC 4648 §6).
private enum Base32 {
    private static let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".utf8)

    static func decoded(_ text: String) -> [UInt8]? {
        var bytes: [UInt8] = []
        var (bits, count) = (UInt32(0), 0)
        for letter in text.utf8 {
            guard let value = alphabet.firstIndex(of: letter) else { return nil }
            bits = (bits << 5 | UInt32(value)) & 0xffff
            count += 5
            guard count >= 8 else { continue }
            count -= 8
            bytes.append(UInt8(truncatingIfNeeded: bits >> UInt32(count)))
        }
        return bytes
    }

    static func encoded(_ bytes: [UInt8]) -> String {
        var letters: [UInt8] = []
        var (bits, count) = (UInt32(0), 0)
        for byte in bytes {
            bits = (bits << 8 | UInt32(byte)) & 0xffff
            count += 8
            while count >= 5 {
                count -= 5
                letters.append(alphabet[Int(bits >> UInt32(count) & 31)])
            }
        }
        if count > 0 { letters.append(alphabet[Int(bits << UInt32(5 - count) & 31)]) }
        return String(decoding: letters, as: UTF8.self)
    }
}
