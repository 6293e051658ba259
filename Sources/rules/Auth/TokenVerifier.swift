import Bytes
import Crypto

/// Verifier that reads the claims of a token, or gives the reason for refusing it.
///
/// A verifier never changes. If the keys change, a new verifier replaces it.
public struct TokenVerifier: Sendable {
    private enum OpaqueMeaning: Sendable {
        case claims(Claims)
        case token([UInt8])
    }

    private let secret: [UInt8]
    private let keys: JWKSet
    private let expectations: ClaimExpectations
    private let opaqueKeys: [TokenDigest: OpaqueMeaning]
    private let maximumBytes: Int

    /// Creates a verifier. If `secret` is nil, tokens with a shared signature need a key in `keys`. Tokens longer than
    /// `maximumBytes` are refused.
    public init(
        secret: String?, keys: JWKSet = .none, expectations: ClaimExpectations = .none,
        opaqueKeys: [String: OpaqueKey] = [:], maximumBytes: Int
    ) {
        self.secret = Array((secret ?? "").utf8)
        self.keys = keys
        self.expectations = expectations
        self.maximumBytes = maximumBytes
        var meanings: [TokenDigest: OpaqueMeaning] = [:]
        for (key, meaning) in opaqueKeys {
            let text = Array(key.utf8)
            // SAFETY: any byte is a valid UInt8, and the span lives for the call.
            let digest = unsafe TokenDigest(of: text.span.bytes)
            meanings[digest] = Self.meaning(meaning, digest)
        }
        self.opaqueKeys = meanings
    }

    private static func meaning(_ key: OpaqueKey, _ digest: TokenDigest) -> OpaqueMeaning {
        switch key {
        case .token(let token): return .token(Array(token.utf8))
        case .role(let role):
            precondition(!role.isEmpty && !role.utf8.contains(0), "a key stands for a role that has a name")
            var json = ByteWriter(capacity: 64)
            json.append("{\"role\":")
            JSONText.appendString(role, to: &json)
            json.append(",\"exp\":")
            json.append(decimal: Claims.latestExpiry)
            json.append("}")
            return .claims(
                Claims(
                    json: json.copied(), role: Array(role.utf8), subject: [], expiry: Claims.latestExpiry,
                    digest: digest))
        }
    }

    /// Returns the claims of a valid token. Throws if it must be refused. `now` is in Unix seconds.
    public func verify(_ token: RawSpan, at now: Int64) throws(TokenError) -> Claims {
        try checkLength(token)
        return try verify(token, TokenDigest(of: token), at: now)
    }

    /// Checks only the token's signature and dates, for operators' tokens, which need no role. `now` is in Unix
    /// seconds.
    public func authenticate(_ token: RawSpan, at now: Int64) throws(TokenError) {
        try checkLength(token)
        _ = try signedClaims(token, at: now)
    }

    func checkLength(_ token: RawSpan) throws(TokenError) {
        guard token.byteCount <= maximumBytes else { throw .malformed }
    }

    func verify(_ token: RawSpan, _ digest: TokenDigest, at now: Int64) throws(TokenError) -> Claims {
        switch opaqueKeys[digest] {
        case .claims(let claims):
            return claims
        case .token(let meant):
            // SAFETY: any byte is a valid UInt8, and the span lives for the call.
            return unsafe try verified(meant.span.bytes, digest, at: now)
        case nil:
            return try verified(token, digest, at: now)
        }
    }

    /// Returns the role, subject and claims that a refused token states. Nil if it was not signed with a key of this
    /// verifier.
    public func holder(ofRefused token: RawSpan) -> TokenHolder? {
        do throws(TokenError) {
            try checkLength(token)
            switch opaqueKeys[TokenDigest(of: token)] {
            case .claims(let claims): return TokenHolder(claims)
            // SAFETY: any byte is a valid UInt8, and the span lives for the call.
            case .token(let meant): return unsafe try signedHolder(meant.span.bytes)
            case nil: return try signedHolder(token)
            }
        } catch {
            return nil
        }
    }

    private func signedHolder(_ token: RawSpan) throws(TokenError) -> TokenHolder {
        let json = try signed(token)
        var reading = ClaimReading(.none, now: 0)
        // The claims may be the reason why the token was refused. They are returned in spite of that.
        // SAFETY: any byte is a valid UInt8, and the span lives for the call.
        try? unsafe reading.read(json.span.bytes)
        return reading.holder(json: json)
    }

    private func verified(_ token: RawSpan, _ digest: TokenDigest, at now: Int64) throws(TokenError) -> Claims {
        let (json, reading) = try signedClaims(token, at: now)
        return try reading.claims(json: json, digest: digest)
    }

    /// Returns the claims after checking the signature and the claims themselves. The checks have the same order as in
    /// Supabase Realtime, so a token with two faults is refused for the same reason.
    func signedClaims(_ token: RawSpan, at now: Int64) throws(TokenError) -> ([UInt8], ClaimReading) {
        let json = try signed(token)
        var reading = ClaimReading(expectations, now: now)
        // SAFETY: any byte is a valid UInt8, and the span lives for the call.
        try unsafe reading.read(json.span.bytes)
        return (json, reading)
    }

    /// Returns the claims of a token, as JSON, after checking its signature.
    private func signed(_ token: RawSpan) throws(TokenError) -> [UInt8] {
        guard let text = TokenText(token), let json = text.claims, let headerBytes = text.header else {
            throw .malformed
        }
        // SAFETY: any byte is a valid UInt8, and the spans live for the calls.
        guard unsafe ClaimReading.isObject(json.span.bytes), let header = unsafe TokenHeader(headerBytes.span.bytes)
        else { throw .malformed }
        try checkSignature(of: text, header)
        return json
    }

    private func checkSignature(of text: TokenText, _ header: TokenHeader) throws(TokenError) {
        // A critical extension that the verifier does not understand makes a token invalid (RFC 7515 §4.1.11).
        guard let algorithm = header.algorithm, !header.isCritical else { throw .noKey(keyID: nil) }
        if case .shared(let hash) = algorithm {
            let key = try sharedKey(header.keyID)
            guard let signature = text.signature else { throw .signature }
            let expected = hash.authenticationCode(of: text.signed, key: key.span)
            guard Secrets.areEqual(expected.span, signature.span) else { throw .signature }
        } else {
            guard let key = keys.publicKey(header.keyID, for: algorithm) else { throw .noKey(keyID: header.keyID) }
            guard let signature = text.signature,
                key.verifies(signature.span, of: text.signed, hashedWith: algorithm.hash)
            else { throw .signature }
        }
    }

    /// Returns the key for a shared signature. Most tokens name a key id although they are signed with the one secret,
    /// so the secret is used if no key has that id.
    private func sharedKey(_ keyID: String?) throws(TokenError) -> [UInt8] {
        if let key = keys.sharedKey(keyID) { return key }
        guard !secret.isEmpty else { throw .noKey(keyID: nil) }
        return secret
    }
}

extension TokenVerifier: CustomStringConvertible, CustomReflectable {
    public var description: String { "TokenVerifier" }

    /// Mirror without children, so that the verifier's secrets cannot be printed.
    public var customMirror: Mirror { Mirror(self, children: []) }
}
