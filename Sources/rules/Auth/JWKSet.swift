import Bytes
import Crypto

/// Set of keys with which tokens may be signed: a parsed and checked JSON Web Key Set (RFC 7517 §5).
public struct JWKSet: Sendable {
    enum Material: Sendable {
        /// Secret key that signer and verifier share.
        case shared([UInt8])
        case `public`(PublicKey)
    }

    struct Key: Sendable {
        let id: String
        let material: Material
    }

    public static let none = JWKSet(keys: [], notes: [])

    let keys: [Key]
    /// Sentences for the operator about the keys that were skipped, and why.
    public let notes: [String]

    public var count: Int { keys.count }

    /// Returns the public key with this id that fits the algorithm. If there are several, returns the first.
    func publicKey(_ id: String?, for algorithm: SigningAlgorithm) -> PublicKey? {
        guard let id else { return nil }
        for key in keys where key.id == id {
            if case .public(let found) = key.material, algorithm.fits(found.kind) { return found }
        }
        return nil
    }

    /// Returns the shared key with this id. If there are several, returns the first.
    func sharedKey(_ id: String?) -> [UInt8]? {
        guard let id else { return nil }
        for key in keys where key.id == id {
            if case .shared(let bytes) = key.material { return bytes }
        }
        return nil
    }
}

extension JWKSet: CustomStringConvertible, CustomReflectable {
    public var description: String { "JWKSet of \(count) keys" }

    /// Mirror without children, so that the set's secrets cannot be printed.
    public var customMirror: Mirror { Mirror(self, children: []) }
}

/// Reason why a text is not a valid key set, in words for the operator.
public enum JWKSetError: Error, Sendable, Equatable {
    case tooLong(maximumBytes: Int)
    case tooManyKeys(maximum: Int)
    /// The text is not JSON, or does not have the form `{"keys": [{…}]}`.
    case shape(expected: String, offset: Int)
    /// A key should work but cannot. The texts say which key and why.
    case key(String, String)
}

extension JWKSetError: CustomStringConvertible {
    public var description: String {
        switch self {
        case .tooLong(let maximum): "the key set is longer than \(maximum) bytes"
        case .tooManyKeys(let maximum): "the key set has more than \(maximum) keys"
        case .shape(let expected, let offset):
            "the key set is not {\"keys\": [{…}, …]}: expected \(expected) at byte \(offset)"
        case .key(let which, let what): "\(which) of the key set: \(what)"
        }
    }
}
