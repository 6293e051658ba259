import Bytes
import Crypto

/// Keys with which tokens may be signed: a JSON Web Key Set (RFC 7517 §5), parsed and checked.
public struct JWKSet: Sendable {
    enum Material: Sendable {
        case shared([UInt8])
        case `public`(PublicKey)
    }

    struct Key: Sendable {
        let id: String
        let material: Material
    }

    public static let none = JWKSet(keys: [], notes: [])

    let keys: [Key]
    /// Skipped keys with the reasons, in sentences for the operator.
    public let notes: [String]

    public var count: Int { keys.count }

    /// Returns the public key with this id that fits the algorithm. Of several such keys, the first one counts.
    func publicKey(_ id: String?, for algorithm: SigningAlgorithm) -> PublicKey? {
        guard let id else { return nil }
        for key in keys where key.id == id {
            if case .public(let found) = key.material, algorithm.fits(found.kind) { return found }
        }
        return nil
    }

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

    /// Mirror without children, because the set may hold secrets.
    public var customMirror: Mirror { Mirror(self, children: []) }
}

/// Reason why a text is not a set of keys, in words for the operator.
public enum JWKSetError: Error, Sendable, Equatable {
    case tooLong(maximumBytes: Int)
    case tooManyKeys(maximum: Int)
    /// The text is not JSON, or not `{"keys": [{…}]}`.
    case shape(expected: String, offset: Int)
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
