/// Reason why a token was refused. Clients and test suites compare the texts, so they are those of Supabase Realtime.
public enum TokenError: Error, Sendable, Equatable {
    /// The token does not have three parts, or a part is malformed.
    case malformed
    /// No key fits: the algorithm is not accepted, or no key is configured for the token. In the second case, `keyID`
    /// is the key that the token names, if any.
    case noKey(keyID: String?)
    /// The signature is not valid.
    case signature
    case expired(secondsAgo: Int64)
    /// The token is not valid yet, because of its `nbf`.
    case early(seconds: Int64)
    /// Clients may not use the token's role.
    case roleRefused
    /// A claim has a value that is not accepted.
    case claimRefused
    /// The token has no `role` or no `exp`.
    case claimsMissing
    /// An operator has blocked the token's user or login for a time.
    case blocked(seconds: Int64)
}

extension TokenError {
    /// HTTP status that answers a WebSocket upgrade.
    public var upgradeStatus: Int {
        switch self {
        case .claimRefused: 500
        case .blocked: 403
        default: 401
        }
    }

    /// Text of `error` in the body of the response that refuses a WebSocket upgrade.
    public var upgradeText: String {
        switch self {
        case .expired: "Token has expired"
        case .early: "Token is not valid yet"
        case .signature: Text.signature
        case .claimRefused: "Error connecting to Realtime"
        case .malformed, .noKey, .claimsMissing, .roleRefused, .blocked: messageText
        }
    }

    /// Text of `reason` in the reply that refuses a join.
    public var joinReason: String {
        switch self {
        case .malformed: "MalformedJWT: " + messageText
        case .noKey: "JwtSignerError: " + messageText
        case .signature: "JwtSignatureError: " + Text.signature
        case .expired, .early, .claimsMissing, .roleRefused: "InvalidJWTToken: " + messageText
        case .claimRefused: "Unknown Error on Channel"
        case .blocked: "Blocked: " + messageText
        }
    }

    /// Text of `message` in the `system` event, with which the hub ends a channel whose token is no longer valid.
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
        // Supabase Realtime has no sentence for this error. It prints the error's name in its own language's syntax.
        case .signature: return ":signature_error"
        case .claimRefused: return "The token's claims were refused"
        case .expired(let seconds): return "Token has expired \(seconds) seconds ago"
        case .early(let seconds): return "Token is not valid for another \(seconds) seconds"
        case .roleRefused: return "The role of the token may not be used by clients"
        case .claimsMissing: return "Fields `role` and `exp` are required in JWT"
        case .blocked(let seconds): return "An operator blocked this user for another \(seconds) seconds"
        }
    }
}
