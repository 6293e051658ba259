/// JSON Web Tokens (RFC 7519), so far only to make them: the development server prints ready-made ones.
public enum JWT {
    /// A token over these claims, signed with HS256 (RFC 7515 §3.1, RFC 7518 §3.2).
    ///
    /// The claims are signed as they are, without a look at whether they are JSON.
    public static func sign(claims: Span<UInt8>, secret: Span<UInt8>) -> String {
        sign(header: Array(#"{"alg":"HS256","typ":"JWT"}"#.utf8).span, claims: claims, secret: secret)
    }

    static func sign(header: Span<UInt8>, claims: Span<UInt8>, secret: Span<UInt8>) -> String {
        let signingInput = base64URL(header) + "." + base64URL(claims)
        let code = SHA256.authenticationCode(of: Array(signingInput.utf8).span, key: secret)
        return signingInput + "." + base64URL(code.span)
    }
}

/// RFC 4648 §5 without padding.
private func base64URL(_ bytes: Span<UInt8>) -> String {
    let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)
    var text: [UInt8] = []
    text.reserveCapacity((bytes.count * 4 + 2) / 3)
    var index = 0
    while index < bytes.count {
        let group = min(3, bytes.count - index)
        var bits: UInt32 = 0
        for place in 0..<group {
            bits |= UInt32(bytes[index + place]) << UInt32(16 - 8 * place)
        }
        for place in 0...group {
            text.append(alphabet[Int(bits >> UInt32(18 - 6 * place) & 63)])
        }
        index += group
    }
    return String(decoding: text, as: UTF8.self)
}
