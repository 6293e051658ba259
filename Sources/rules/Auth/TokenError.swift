/// Reason why a token was refused. The texts are those of the reference, which clients and test suites compare.
public enum TokenError: Error, Sendable, Equatable {
    /// The token does not have three parts, or the parts are malformed.
    case malformed
    /// No key fits: the algorithm is not accepted, or the key is not configured. In the second case, the key may be
    /// named.
    case noKey(keyID: String?)
    case signature
    case expired(secondsAgo: Int64)
    /// The token is not valid before a later moment (`nbf`).
    case early(seconds: Int64)
    /// Clients may not use the token's role here.
    case roleRefused
    /// A claim has a value that it must not have.
    case claimRefused
    /// The token has no `role` or no `exp`.
    case claimsMissing
}

extension TokenError {
    /// HTTP status that answers a WebSocket upgrade.
    public var upgradeStatus: Int { self == .claimRefused ? 500 : 401 }

    /// The `error` in the body of the answer to an upgrade.
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
        // The reference has no words for this error and prints it in the form of its own language.
        case .signature: return ":signature_error"
        case .claimRefused: return "The token's claims were refused"
        case .expired(let seconds): return "Token has expired \(seconds) seconds ago"
        case .early(let seconds): return "Token is not valid for another \(seconds) seconds"
        case .roleRefused: return "The role of the token may not be used by clients"
        case .claimsMissing: return "Fields `role` and `exp` are required in JWT"
        }
    }
}
