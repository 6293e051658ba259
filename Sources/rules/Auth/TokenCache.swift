import Bytes

/// Verifier that remembers recent valid tokens. The signature of an API key that ten thousand clients share is thus
/// checked only once. Each thread has its own cache.
public struct TokenCache: ~Copyable {
    private let verifier: TokenVerifier
    private let capacity: Int
    /// Claims of the recently used tokens. When there are `capacity` of them, they become `older`, and the former
    /// `older` ones are discarded. Using a token moves it here.
    private var recent: [TokenDigest: Claims] = [:]
    private var older: [TokenDigest: Claims] = [:]

    /// Creates a cache that remembers at least the last `capacity` tokens, and at most twice as many.
    public init(_ verifier: TokenVerifier, capacity: Int) {
        precondition(capacity > 0, "a cache has room")
        self.verifier = verifier
        self.capacity = capacity
    }

    public var count: Int { recent.count + older.count }

    /// Verifies a token like `TokenVerifier.verify`. The cache does not remember refused tokens, so only an owner of a
    /// key can fill it.
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

    /// Returns the role, subject and claims that a refused token states; nil if its signature is not valid.
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
