import Bytes

/// Creation of JSON Web Tokens (RFC 7519). The development server prints tokens that are ready to use.
public enum JWT {
    /// Returns a token with these claims, signed with HS256 (RFC 7515 §3.1, RFC 7518 §3.2).
    ///
    /// The claims are signed unchanged, without a check that they are JSON.
    public static func sign(claims: Span<UInt8>, secret: Span<UInt8>) -> String {
        sign(header: Array(#"{"alg":"HS256","typ":"JWT"}"#.utf8).span, claims: claims, secret: secret)
    }

    static func sign(header: Span<UInt8>, claims: Span<UInt8>, secret: Span<UInt8>) -> String {
        let signingInput = Base64URL.encode(header) + "." + Base64URL.encode(claims)
        let code = SHA256.authenticationCode(of: Array(signingInput.utf8).span, key: secret)
        return signingInput + "." + Base64URL.encode(code.span)
    }
}
