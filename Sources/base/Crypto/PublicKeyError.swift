/// Why numbers do not make a public key. The words are for the operator who configured them.
public enum PublicKeyError: Error, Sendable, Equatable {
    case modulusBits(Int)
    case exponent
    /// A coordinate or an encoded point has another length than its curve says.
    case length(expected: Int, found: Int)
    /// OpenSSL looked at the numbers and found no key in them: a point beside its curve, a modulus that is prime …
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
