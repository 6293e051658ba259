import Crypto

/// Accepted signature algorithms (RFC 7518 §3.1, RFC 8037 §3.1). Tokens with another algorithm, such as `none` or the
/// PSS family, are refused.
enum SigningAlgorithm: Sendable, Equatable {
    case shared(HashAlgorithm)
    case rsa(HashAlgorithm)
    case elliptic(EllipticCurve)
    /// An Edwards curve; nil means that both curves are accepted.
    case edwards(EdwardsCurve?)

    init?(_ name: String) {
        switch name {
        case "HS256": self = .shared(.sha256)
        case "HS384": self = .shared(.sha384)
        case "HS512": self = .shared(.sha512)
        case "RS256": self = .rsa(.sha256)
        case "RS384": self = .rsa(.sha384)
        case "RS512": self = .rsa(.sha512)
        case "ES256": self = .elliptic(.p256)
        case "ES384": self = .elliptic(.p384)
        case "ES512": self = .elliptic(.p521)
        case "EdDSA": self = .edwards(nil)
        case "Ed25519": self = .edwards(.ed25519)
        case "Ed448": self = .edwards(.ed448)
        default: return nil
        }
    }

    /// Hash function of the algorithm. Each curve has its own (RFC 7518 §3.4).
    var hash: HashAlgorithm {
        switch self {
        case .shared(let hash), .rsa(let hash): hash
        case .elliptic(.p256), .edwards: .sha256
        case .elliptic(.p384): .sha384
        case .elliptic(.p521): .sha512
        }
    }

    /// True if the algorithm uses this kind of public key. A token thus cannot choose how a key is interpreted.
    func fits(_ kind: PublicKey.Kind) -> Bool {
        switch (self, kind) {
        case (.rsa, .rsa): true
        case (.elliptic(let wanted), .elliptic(let curve)): wanted == curve
        case (.edwards(let wanted), .edwards(let curve)): wanted == nil || wanted == curve
        default: false
        }
    }
}
