/// Why a token was refused. The texts are those of the reference, which clients and test suites compare.
public enum TokenError: Error, Sendable, Equatable {
    /// Three parts, or what is in them, are not those of a token.
    case malformed
    /// No key fits: an algorithm that is not taken, or a key that was not configured; then it is named.
    case noKey(keyID: String?)
    case signature
    case expired(secondsAgo: Int64)
    /// It is not valid before a later moment (`nbf`).
    case early(seconds: Int64)
    /// Its role is none that clients may have here.
    case roleRefused
    /// A claim has a value that it must not have.
    case claimRefused
    /// There is no `role` or no `exp`.
    case claimsMissing
}

extension TokenError {
    /// The answer to a WebSocket upgrade.
    public var upgradeStatus: Int { self == .claimRefused ? 500 : 401 }

    /// The `error` in the body of that answer.
    public var upgradeText: String {
        switch self {
        case .expired: "Token has expired"
        case .early: "Token is not valid yet"
        case .signature: Text.signature
        case .claimRefused: "Error connecting to Realtime"
        case .malformed, .noKey, .claimsMissing, .roleRefused: messageText
        }
    }

    /// The `reason` in the reply to a join.
    public var joinReason: String {
        switch self {
        case .malformed: "MalformedJWT: " + messageText
        case .noKey: "JwtSignerError: " + messageText
        case .signature: "JwtSignatureError: " + Text.signature
        case .expired, .early, .claimsMissing, .roleRefused: "InvalidJWTToken: " + messageText
        case .claimRefused: "Unknown Error on Channel"
        }
    }

    /// The `message` of the `system` event that ends a channel whose token is no longer good.
    public var systemMessage: String { messageText }

    private enum Text {
        static let signature = "Failed to validate JWT signature"
    }

    private var messageText: String {
        switch self {
        case .malformed: return "The token provided is not a valid JWT"
        case .noKey(let keyID):
            let which = keyID.map { " for key ID (kid) \"\($0)\"" } ?? ""
            return "Failed to generate JWT signer\(which), check your JWT secret or JWKS configuration"
        // What the reference has no words for, it prints as its own language shows it.
        case .signature: return ":signature_error"
        case .claimRefused: return "The token's claims were refused"
        case .expired(let seconds): return "Token has expired \(seconds) seconds ago"
        case .early(let seconds): return "Token is not valid for another \(seconds) seconds"
        case .roleRefused: return "The role of the token may not be used by clients"
        case .claimsMissing: return "Fields `role` and `exp` are required in JWT"
        }
    }
}
