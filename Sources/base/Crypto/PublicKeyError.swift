/// Reason why numbers do not form a public key. The text is for the operator who configured them.
public enum PublicKeyError: Error, Sendable, Equatable {
    case modulusBits(Int)
    case exponent
    /// A coordinate or an encoded point does not have the length that its curve requires.
    case length(expected: Int, found: Int)
    /// OpenSSL found no valid key in the numbers, for example because a point is not on its curve or the modulus is a
    /// prime.
    case refused
}

extension PublicKeyError: CustomStringConvertible {
    public var description: String {
        switch self {
        case .modulusBits(let bits):
            "its modulus has \(bits) bits, where \(PublicKey.modulusBits.lowerBound) to "
                + "\(PublicKey.modulusBits.upperBound) are allowed"
        case .exponent: "its exponent is not an odd number from 3 on, of 8 bytes at most"
        case .length(let expected, let found): "it has \(found) bytes where its curve wants \(expected)"
        case .refused: "its numbers do not make a key"
        }
    }
}
