import Bytes

/// Verifier that remembers recent valid tokens: the signature of an API key that ten thousand clients share is checked
/// once. Each thread has its own.
public struct TokenCache: ~Copyable {
    private let verifier: TokenVerifier
    private let capacity: Int
    /// Tokens seen lately. A token that is seen again moves here. At the limit, tokens that were not seen since the
    /// last limit are dropped.
    private var recent: [TokenDigest: Claims] = [:]
    private var older: [TokenDigest: Claims] = [:]

    /// Creates a cache that remembers at least `capacity` of the last tokens, and at most twice as many.
    public init(_ verifier: TokenVerifier, capacity: Int) {
        precondition(capacity > 0, "a cache has room")
        self.verifier = verifier
        self.capacity = capacity
    }

    public var count: Int { recent.count + older.count }

    /// Verifies like `TokenVerifier.verify`. Refused tokens are not remembered, so nobody without a key can fill the
    /// cache.
    public mutating func verify(_ token: RawSpan, at now: Int64) throws(TokenError) -> Claims {
        try verifier.checkLength(token)
        let digest = TokenDigest(of: token)
        if let claims = remembered(digest) {
            try claims.check(at: now)
            return claims
        }
        let claims = try verifier.verify(token, digest, at: now)
        remember(claims)
        return claims
    }

    /// Returns the holder whom a refused token names; nil if the token is not signed.
    public func holder(ofRefused token: RawSpan) -> TokenHolder? { verifier.holder(ofRefused: token) }

    func holds(_ digest: TokenDigest) -> Bool { recent[digest] != nil || older[digest] != nil }

    private mutating func remembered(_ digest: TokenDigest) -> Claims? {
        if let claims = recent[digest] { return claims }
        guard let claims = older.removeValue(forKey: digest) else { return nil }
        remember(claims)
        return claims
    }

    private mutating func remember(_ claims: Claims) {
        if recent.count >= capacity {
            older = recent
            recent = [:]
        }
        recent[claims.digest] = claims
    }
}
