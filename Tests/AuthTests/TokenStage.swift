import Auth
import Bytes
import Crypto
import TestSupport

/// Current time of these tests, in seconds since 1970.
let now: Int64 = 1_800_000_000
let secret = "super-secret-jwt-token-with-at-least-32-characters-long"
let tokenLimit = 16 << 10

/// Tokens for tests, valid or not.
enum Token {
    static func signed(
        _ claims: String, header: String = #"{"alg":"HS256","typ":"JWT"}"#, secret: [UInt8] = Array(secret.utf8),
        hash: HashAlgorithm = .sha256
    ) -> String {
        made(claims, header: header) { hash.authenticationCode(of: $0.span, key: secret.span) }
    }

    static func signed(_ claims: String, header: String, by key: SigningKey, digestBits: Int?) -> String {
        made(claims, header: header) { key.sign($0, digestBits: digestBits) }
    }

    static func made(_ claims: String, header: String, _ sign: ([UInt8]) -> [UInt8]) -> String {
        let input = encoded(header) + "." + encoded(claims)
        return input + "." + Base64URL.encode(sign(Array(input.utf8)).span)
    }

    static func encoded(_ text: String) -> String { Base64URL.encode(Array(text.utf8).span) }

    static let user = #"{"role":"authenticated","sub":"0b8ef5a0-7a4f-4f2e-9d7e-0d3f7a8c1b2d","exp":1800000600}"#
}

/// Returns the JSON Web Key of a test's key.
func jwk(_ key: SigningKey, id: String, extra: String = "") -> String {
    let numbers = key.publicNumbers.map { "\"\($0.key)\":\"\(Base64URL.encode($0.value.span))\"" }.joined(
        separator: ",")
    let kind =
        switch key.kind {
        case .rsa2048: #""kty":"RSA""#
        case .p256: #""kty":"EC","crv":"P-256""#
        case .p384: #""kty":"EC","crv":"P-384""#
        case .p521: #""kty":"EC","crv":"P-521""#
        case .ed25519: #""kty":"OKP","crv":"Ed25519""#
        case .ed448: #""kty":"OKP","crv":"Ed448""#
        }
    return "{\(kind),\"kid\":\"\(id)\",\(numbers)\(extra)}"
}

func keySet(_ keys: String...) throws(JWKSetError) -> JWKSet {
    try parsedKeySet("{\"keys\":[\(keys.joined(separator: ","))]}")
}

func parsedKeySet(_ text: String, maximumBytes: Int = 64 << 10, maximumKeys: Int = 16) throws(JWKSetError) -> JWKSet {
    let bytes = Array(text.utf8)
    return try JWKSet.parse(bytes.span.bytes, maximumBytes: maximumBytes, maximumKeys: maximumKeys)
}

extension TokenVerifier {
    init(keys: JWKSet = .none, expectations: ClaimExpectations = .none, opaqueKeys: [String: OpaqueKey] = [:]) {
        self.init(
            secret: secret, keys: keys, expectations: expectations, opaqueKeys: opaqueKeys, maximumBytes: tokenLimit)
    }

    func verify(_ token: String, at moment: Int64 = now) throws(TokenError) -> Claims {
        let bytes = Array(token.utf8)
        return try verify(bytes.span.bytes, at: moment)
    }

    /// Returns the reason for which the verifier refuses a token; nil if it accepts the token.
    func refusal(_ token: String, at moment: Int64 = now) -> TokenError? {
        do throws(TokenError) {
            _ = try verify(token, at: moment)
            return nil
        } catch {
            return error
        }
    }

    func accepts(_ token: String) -> Bool { refusal(token) == nil }
}

extension Claims {
    /// Claims as plain texts: `#expect` does not accept expressions that contain spans.
    var roleText: String { role.text }
    var subjectText: String { subject.text }
    var jsonText: String { json.text }
}
