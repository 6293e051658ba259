import Bytes
import Crypto
import TestSupport
import Testing

@testable import Auth

@Suite(.within(minutes: 5)) struct TokenVerifierTests {
    private let verifier = TokenVerifier()

    @Test func `reads who comes from a good token`() throws {
        let claims = try verifier.verify(Token.signed(Token.user))
        #expect(claims.roleText == "authenticated")
        #expect(claims.subjectText == "0b8ef5a0-7a4f-4f2e-9d7e-0d3f7a8c1b2d")
        #expect(claims.expiry == 1_800_000_600)
        #expect(claims.jsonText == Token.user)
    }

    private func refused(_ token: String, _ verifier: TokenVerifier = TokenVerifier()) -> TokenHolder? {
        let bytes = Array(token.utf8)
        return verifier.holder(ofRefused: bytes.span.bytes)
    }

    @Test(arguments: [
        #"{"role":"authenticated","sub":"ana","exp":1}"#,
        #"{"role":"authenticated","sub":"ana","nbf":1900000000,"exp":1900000001}"#,
        #"{"role":"authenticated","sub":"ana"}"#, #"{"sub":"ana","exp":1900000000}"#, #"{"exp":"soon","sub":"ana"}"#,
        #"{"role":5,"sub":"ana","exp":1900000000}"#,
    ])
    func `the holder of a refused token is known if it is signed`(claims: String) throws {
        let token = Token.signed(claims)
        #expect(verifier.refusal(token) != nil)
        let holder = try #require(refused(token))
        #expect(String(decoding: holder.subject, as: UTF8.self) == "ana")
        #expect(String(decoding: holder.json, as: UTF8.self) == claims)
    }

    @Test func `nobody is known by a token that is not signed, not whole or too long`() {
        let expired = #"{"role":"authenticated","sub":"ana","exp":1}"#
        let good = Token.signed(expired)
        let parts = good.split(separator: ".")
        let long = Token.signed(#"{"sub":"ana","exp":1,"x":"\#(String(repeating: "x", count: tokenLimit))"}"#)
        let tokens = [
            "", "..", "ana", parts[0] + "." + parts[1] + ".", Token.signed(expired, secret: Array("other".utf8)),
            Token.signed(expired, header: #"{"alg":"none"}"#),
            good.replacing("." + parts[1], with: "." + Token.encoded(Token.user)),
            Token.signed("[1]"), long,
        ]
        for token in tokens { #expect(refused(token) == nil, "\(token.prefix(80))") }
    }

    @Test func `the holder of a refused token that stands for an opaque key is known`() throws {
        let verifier = TokenVerifier(opaqueKeys: [
            "sb_key": .token(Token.signed(#"{"role":"authenticated","sub":"ana","exp":1}"#)), "sb_role": .role("anon"),
        ])
        #expect(refused("sb_key", verifier).map { String(decoding: $0.subject, as: UTF8.self) } == "ana")
        #expect(refused("sb_role", verifier).map { String(decoding: $0.role, as: UTF8.self) } == "anon")
        #expect(refused("sb_other", verifier) == nil)
    }

    @Test func `keeps the claims byte for byte as they were sent`() throws {
        let sent =
            "{ \"role\" : \"anon\",\n \"exp\":1.8000006e9, \"x\":[1,{\"y\":\"\\u00e9 é\"}], \"role\":\"a\\u006eon\" }"
        let claims = try verifier.verify(Token.signed(sent))
        #expect(claims.jsonText == sent)
        #expect(claims.roleText == "anon")
        #expect(claims.subjectText == "")
        #expect(claims.expiry == 1_800_000_600)
    }

    @Test func `counts the last of two claims of one name, as PostgreSQL does`() throws {
        let claims = try verifier.verify(
            Token.signed(#"{"role":"anon","sub":"a","exp":5,"r\u006fle":"authenticated","sub":"b","exp":1800000001}"#))
        #expect(claims.roleText == "authenticated")
        #expect(claims.subjectText == "b")
        let ends = Token.signed(#"{"role":"anon","exp":1800000001,"exp":1799999999}"#)
        #expect(verifier.refusal(ends) == .expired(secondsAgo: 1))
    }

    @Test(arguments: [("HS256", HashAlgorithm.sha256), ("HS384", .sha384), ("HS512", .sha512)])
    func `takes the shared secret with each digest`(name: String, hash: HashAlgorithm) {
        let header = "{\"alg\":\"\(name)\"}"
        #expect(verifier.accepts(Token.signed(Token.user, header: header, hash: hash)))
        #expect(
            verifier.refusal(Token.signed(Token.user, header: header, secret: Array("other".utf8), hash: hash))
                == .signature)
    }

    @Test(arguments: [
        (SigningKey.Kind.rsa2048, "RS256", 256 as Int?), (.rsa2048, "RS384", 384), (.rsa2048, "RS512", 512),
        (.p256, "ES256", 256), (.p384, "ES384", 384), (.p521, "ES512", 512), (.ed25519, "EdDSA", nil),
        (.ed25519, "Ed25519", nil), (.ed448, "EdDSA", nil), (.ed448, "Ed448", nil),
    ])
    func `takes the signatures of configured keys`(kind: SigningKey.Kind, name: String, bits: Int?) throws {
        let (key, stranger) = (SigningKey(kind), SigningKey(kind))
        let verifier = TokenVerifier(keys: try keySet(jwk(key, id: "k1")))
        let header = "{\"alg\":\"\(name)\",\"kid\":\"k1\"}"
        let token = Token.signed(Token.user, header: header, by: key, digestBits: bits)
        #expect(try verifier.verify(token).roleText == "authenticated")
        #expect(
            verifier.refusal(Token.signed(Token.user, header: header, by: stranger, digestBits: bits)) == .signature)
        #expect(verifier.refusal(token.replacing("." + Token.encoded(Token.user), with: "." + other)) == .signature)
        let unnamed = Token.signed(Token.user, header: "{\"alg\":\"\(name)\"}", by: key, digestBits: bits)
        #expect(verifier.refusal(unnamed) == .noKey(keyID: nil))
        let misnamed = Token.signed(
            Token.user, header: "{\"alg\":\"\(name)\",\"kid\":\"k2\"}", by: key, digestBits: bits)
        #expect(verifier.refusal(misnamed) == .noKey(keyID: "k2"))
        #expect(TokenVerifier().refusal(token) == .noKey(keyID: "k1"))
    }

    private let other = Token.encoded(#"{"role":"service_role","exp":1800000600}"#)

    /// Checks RFC 8725 §2.1 and §3.1: a token must not choose the meaning of a key.
    @Test func `does not take a public key for a shared secret`() throws {
        let key = SigningKey(.rsa2048)
        let text = jwk(key, id: "k1")
        let verifier = TokenVerifier(keys: try keySet(text))
        let modulus = try #require(key.publicNumbers["n"])
        for secret in [modulus, Array(text.utf8), []] {
            let forged = Token.signed(Token.user, header: #"{"alg":"HS256","kid":"k1"}"#, secret: secret)
            #expect(verifier.refusal(forged) == .signature)
        }
    }

    @Test func `does not take a curve for another, nor a signature of another digest`() throws {
        let (rsa, p256, p384) = (SigningKey(.rsa2048), SigningKey(.p256), SigningKey(.p384))
        let ed = SigningKey(.ed25519)
        let verifier = TokenVerifier(
            keys: try keySet(jwk(rsa, id: "rsa"), jwk(p256, id: "p256"), jwk(p384, id: "p384"), jwk(ed, id: "ed")))
        func refusal(_ algorithm: String, _ id: String, _ key: SigningKey, _ bits: Int?) -> TokenError? {
            verifier.refusal(
                Token.signed(
                    Token.user, header: "{\"alg\":\"\(algorithm)\",\"kid\":\"\(id)\"}", by: key, digestBits: bits))
        }
        #expect(refusal("ES256", "p384", p384, 256) == .noKey(keyID: "p384"))
        #expect(refusal("ES384", "p256", p256, 384) == .noKey(keyID: "p256"))
        #expect(refusal("RS256", "p256", p256, 256) == .noKey(keyID: "p256"))
        #expect(refusal("ES256", "rsa", rsa, 256) == .noKey(keyID: "rsa"))
        #expect(refusal("Ed448", "ed", ed, nil) == .noKey(keyID: "ed"))
        #expect(refusal("EdDSA", "rsa", rsa, 256) == .noKey(keyID: "rsa"))
        #expect(refusal("ES256", "p256", p256, 384) == .signature)
        #expect(refusal("RS512", "rsa", rsa, 256) == .signature)
        #expect(refusal("HS256", "rsa", rsa, 256) == .signature)
    }

    @Test(arguments: [
        #"{"alg":"none"}"#, #"{"alg":"None"}"#, #"{"alg":""}"#, #"{"alg":null}"#, #"{"alg":["HS256"]}"#, "{}",
        #"{"alg":"PS256","kid":"k1"}"#, #"{"alg":"hs256"}"#, #"{"alg":"HS256 "}"#, #"{"alg":"ES256K","kid":"k1"}"#,
        #"{"alg":"HS256","crit":["exp"]}"#, #"{"alg":"HS256","alg":"none"}"#,
    ])
    func `takes no other algorithm`(header: String) throws {
        let verifier = TokenVerifier(keys: try keySet(jwk(SigningKey(.rsa2048), id: "k1")))
        #expect(verifier.refusal(Token.signed(Token.user, header: header)) == .noKey(keyID: nil))
        let unsigned = Token.encoded(header) + "." + Token.encoded(Token.user) + "."
        #expect(verifier.refusal(unsigned) == .noKey(keyID: nil))
    }

    @Test func `a key of its own goes before the common secret, and only under its id`() throws {
        let own = Array("a key of its own".utf8)
        let verifier = TokenVerifier(
            keys: try keySet("{\"kty\":\"oct\",\"kid\":\"own\",\"k\":\"\(Base64URL.encode(own.span))\"}"))
        #expect(verifier.accepts(Token.signed(Token.user, header: #"{"alg":"HS256","kid":"own"}"#, secret: own)))
        #expect(verifier.refusal(Token.signed(Token.user, header: #"{"alg":"HS256","kid":"own"}"#)) == .signature)
        #expect(verifier.accepts(Token.signed(Token.user, header: #"{"alg":"HS256","kid":"else"}"#)))
        #expect(verifier.accepts(Token.signed(Token.user, header: #"{"alg":"HS256","kid":7}"#)))
        #expect(verifier.refusal(Token.signed(Token.user, secret: own)) == .signature)
    }

    @Test(arguments: [nil, ""])
    func `takes no token by a secret that is not there`(missing: String?) {
        let verifier = TokenVerifier(secret: missing, maximumBytes: tokenLimit)
        for header in [#"{"alg":"HS256"}"#, #"{"alg":"HS256","kid":"k1"}"#] {
            #expect(verifier.refusal(Token.signed(Token.user, header: header, secret: [])) == .noKey(keyID: nil))
        }
    }

    @Test func `undoes URI encoding and takes white space out`() throws {
        let token = Token.signed(Token.user)
        let halves = token.prefix(20) + " \n\t\r" + token.dropFirst(20)
        let encoded = token.map { $0 == "." ? "%2E" : $0 == "e" ? "%65" : String($0) }.joined()
        for text in [" \(token)\n", String(halves), encoded, "%20" + token + "%0a", token + "\u{b}\u{c}"] {
            #expect(verifier.accepts(text), "\(text)")
        }
        for text in [token + "%", token + "%2", token + "%zz", token + "%00", token + "+", token + "\u{a0}"] {
            #expect(verifier.refusal(text) != nil, "\(text)")
        }
    }

    @Test(arguments: [
        "", ".", "..", "...", "a", "a.b", "a.b.c", "a.b.c.d", "sb_publishable_x", "eyJhbGciOiJIUzI1NiJ9..",
        ".e30.", "W10.e30.AA", "e30.W10.AA", "e30.bnVsbA.AA", "MQ.e30.AA", "e30.e30x.AA", "e30 .e3=0.AA", "e30=.e30.AA",
        "e31.e30.AA", "e30.e31.AA", "%ff%fe.e30.AA", "e30.eyJhIjo.AA", "e30.e30K.AA.", "\u{0}", "é.è.à",
    ])
    func `says that a text is no token`(text: String) {
        #expect(verifier.refusal(text) == .malformed)
    }

    @Test func `refuses a token in which anything was changed, shortened or added`() {
        let token = Array(Token.signed(Token.user).utf8)
        for index in token.indices {
            for change: UInt8 in [1, 2, 4, 16, 32] {
                var changed = token
                changed[index] ^= change
                #expect(!verifier.accepts(String(decoding: changed, as: UTF8.self)), "byte \(index)")
            }
            #expect(!verifier.accepts(String(decoding: token.prefix(index), as: UTF8.self)))
        }
        for end in ["A", "=", "==", ".", ".e30", "A=="] {
            #expect(!verifier.accepts(String(decoding: token, as: UTF8.self) + end), "\(end)")
        }
    }

    /// Checks the unused bits in the signature's last character. They could change without an effect on the signature's
    /// bytes, so only one text is accepted (RFC 4648 §3.5).
    @Test func `takes a signature in one spelling only`() throws {
        let token = Token.signed(Token.user)
        let last = try #require(token.last)
        let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        for character in alphabet where character != last {
            #expect(verifier.refusal(String(token.dropLast()) + String(character)) == .signature)
        }
        #expect(verifier.refusal(token.replacing("-", with: "+").replacing("_", with: "/") + "=") == .signature)
    }

    @Test func `looks at nothing longer than its limit`() {
        func token(filledWith count: Int) -> String {
            Token.signed("{\"x\":\"\(String(repeating: "y", count: count))\"," + Token.user.dropFirst())
        }
        let small = TokenVerifier(secret: secret, maximumBytes: 1000)
        let long = token(filledWith: 1000)
        #expect(verifier.accepts(long))
        #expect(small.refusal(long) == .malformed)
        #expect(small.accepts(token(filledWith: 100)))
        let deep = String(repeating: "[", count: 6000) + String(repeating: "]", count: 6000)
        #expect(verifier.refusal(Token.signed("{\"x\":\(deep)," + Token.user.dropFirst())) == .malformed)
        #expect(verifier.refusal(String(repeating: ".", count: tokenLimit)) == .malformed)
        #expect(verifier.refusal(String(repeating: "%", count: tokenLimit)) == .malformed)
    }

    @Test func `authenticates operators, whoever they are`() throws {
        func refusal(_ token: String) -> TokenError? {
            let bytes = Array(token.utf8)
            do throws(TokenError) {
                try verifier.authenticate(bytes.span.bytes, at: now)
                return nil
            } catch {
                return error
            }
        }
        #expect(refusal(Token.signed("{}")) == nil)
        #expect(refusal(Token.signed(#"{"exp":1800000000}"#)) == .expired(secondsAgo: 0))
        #expect(refusal(Token.signed(#"{"iat":"x"}"#)) == .claimRefused)
        #expect(refusal(Token.signed("{}", secret: [1])) == .signature)
        #expect(refusal(String(repeating: "a", count: tokenLimit + 1)) == .malformed)
    }

    @Test func `shows nothing of its secrets`() throws {
        let verifier = TokenVerifier(
            keys: try keySet(#"{"kty":"oct","kid":"own","k":"aHVudGVyMg"}"#),
            opaqueKeys: ["sb_secret_hunter2": .role("service_role")])
        var shown = "\(verifier) \(String(reflecting: verifier))"
        dump(verifier, to: &shown)
        #expect(!shown.contains(secret) && !shown.contains("hunter2") && !shown.contains("115"))
    }
}

@Suite(.within(minutes: 5)) struct ClaimTests {
    private let verifier = TokenVerifier()

    @Test(arguments: [
        ("1800000001", nil), ("1800000000", TokenError.expired(secondsAgo: 0)),
        ("1799999990", .expired(secondsAgo: 10)),
        // Fractions are rounded, and a half is rounded away from zero.
        ("1800000000.5", nil), ("1800000000.49", .expired(secondsAgo: 0)), ("1.800000001e9", nil),
        ("1799999999.5", .expired(secondsAgo: 0)), ("0", .expired(secondsAgo: 1_800_000_000)),
        ("-1", .expired(secondsAgo: 1_800_000_001)), ("-9223372036854775808", .expired(secondsAgo: .max)),
        ("-1e300", .expired(secondsAgo: 1_800_000_000 + Claims.latestExpiry)),
        ("1e300", nil), ("9223372036854775807", nil), ("99999999999999999999", nil), ("1e999", nil),
        ("\"1800000600\"", .claimRefused), ("true", .claimRefused), ("null", .claimRefused),
        ("[1800000600]", .claimRefused),
        ("{}", .claimRefused), ("01", .malformed), ("0x7fffffff", .malformed), ("NaN", .malformed),
    ])
    func `looks at the end of a token`(expiry: String, refusal: TokenError?) {
        #expect(verifier.refusal(Token.signed("{\"role\":\"anon\",\"exp\":\(expiry)}")) == refusal)
    }

    @Test func `has no end beyond the calendar, so that it can be reckoned with`() throws {
        for expiry in ["1e300", "9223372036854775807", "99999999999999999999"] {
            let claims = try verifier.verify(Token.signed("{\"role\":\"anon\",\"exp\":\(expiry)}"))
            #expect(claims.expiry == Claims.latestExpiry)
        }
    }

    @Test(arguments: [
        ("1", nil), ("1.5", nil), ("-5", nil), ("9999999999", nil), ("\"1\"", TokenError.claimRefused),
        ("null", .claimRefused), ("[]", .claimRefused), ("false", .claimRefused),
    ])
    func `looks at the beginning of a token`(issued: String, refusal: TokenError?) {
        #expect(
            verifier.refusal(Token.signed("{\"iat\":\(issued),\"role\":\"anon\",\"exp\":1800000600}")) == refusal)
    }

    @Test(arguments: [
        "{}", #"{"role":"anon"}"#, #"{"exp":1800000600}"#, #"{"role":null,"exp":1800000600}"#,
        #"{"role":"","exp":1800000600}"#, #"{"role":5,"exp":1800000600}"#, #"{"role":["anon"],"exp":1800000600}"#,
        #"{"role":"anon\u0000","exp":1800000600}"#, #"{"Role":"anon","exp":1800000600}"#,
        #"{"app":{"role":"anon"},"exp":1800000600}"#,
    ])
    func `needs a role and an end`(claims: String) {
        #expect(verifier.refusal(Token.signed(claims)) == .claimsMissing)
    }

    @Test func `takes no subject that C would cut short`() {
        #expect(
            verifier.refusal(Token.signed(#"{"role":"anon","exp":1800000600,"sub":"a\u0000b"}"#)) == .claimRefused)
    }

    @Test func `does not look at other dates and names`() {
        let claims = #"{"aud":"x","iss":"y","role":"anon","exp":1800000600}"#
        #expect(verifier.accepts(Token.signed(claims)))
    }

    @Test(arguments: [
        ("1", nil), ("\(now)", nil), ("\(now).4", nil), ("\(now + 1)", TokenError.early(seconds: 1)),
        ("1e300", .early(seconds: Claims.latestExpiry - now)), ("\"1\"", .claimRefused), ("null", .claimRefused),
        ("[1]", .claimRefused),
    ])
    func `takes no token before its time, as none after it`(start: String, refusal: TokenError?) {
        #expect(verifier.refusal(Token.signed("{\"nbf\":\(start),\"role\":\"anon\",\"exp\":1800000600}")) == refusal)
    }

    @Test(arguments: [
        (#""iss":"me","#, nil), (#""iss":"you","#, TokenError.claimRefused), (#""iss":null,"#, .claimRefused),
        (#""iss":["me"],"#, .claimRefused), ("", nil), (#""level":2,"#, nil), (#""level":2.0,"#, nil),
        (#""level":"2","#, .claimRefused), (#""level":2.5,"#, .claimRefused), (#""on":true,"#, nil),
        (#""on":"true","#, .claimRefused), (#""no":null,"#, nil), (#""no":false,"#, .claimRefused),
        (#""share":0.5,"#, nil), (#""share":5e-1,"#, nil), (#""share":1,"#, .claimRefused),
    ])
    func `compares claims with what the operator expects, where there are any`(
        claim: String, refusal: TokenError?
    ) throws {
        let text = Array(#"{"iss":"me","level":2,"on":true,"no":null,"share":0.5,"exp":1,"iat":"x"}"#.utf8)
        let expectations = try ClaimExpectations.parse(text.span.bytes)
        let verifier = TokenVerifier(expectations: expectations)
        #expect(verifier.refusal(Token.signed("{\(claim)\"role\":\"anon\",\"exp\":1800000600}")) == refusal)
    }

    /// Checks the order of Supabase Realtime: it first checks the present claims by name, then the required ones.
    @Test func `says what the reference says of a token with two faults`() throws {
        let expected = Array(#"{"aud":"x","role":"anon"}"#.utf8)
        let verifier = TokenVerifier(expectations: try ClaimExpectations.parse(expected.span.bytes))
        func refusal(_ claims: String, secret key: String = secret, header: String = #"{"alg":"HS256"}"#) -> TokenError?
        {
            verifier.refusal(Token.signed(claims, header: header, secret: Array(key.utf8)))
        }
        #expect(refusal(#"{"exp":1,"aud":"y"}"#) == .claimRefused)
        #expect(refusal(#"{"exp":1799999999,"role":"other"}"#) == .expired(secondsAgo: 1))
        #expect(refusal(#"{"iat":"x","exp":1799999999}"#) == .expired(secondsAgo: 1))
        #expect(refusal(#"{"exp":1799999999}"#) == .expired(secondsAgo: 1))
        #expect(refusal(#"{"exp":1}"#, secret: "other") == .signature)
        #expect(refusal(#"{"exp":1}"#, secret: "other", header: #"{"alg":"PS256"}"#) == .noKey(keyID: nil))
        #expect(refusal(#"["exp"]"#, secret: "other", header: #"{"alg":"PS256"}"#) == .malformed)
        #expect(refusal(#"{"exp":1}"#, secret: "other", header: "[]") == .malformed)
    }

    @Test(arguments: ["", "[]", "{", #"{"a":[1]}"#, #"{"a":{}}"#, #"{"a":1}x"#, "null"])
    func `refuses expectations that are not plain values by name`(text: String) {
        let bytes = Array(text.utf8)
        #expect(throws: ClaimExpectationsError.self) { try ClaimExpectations.parse(bytes.span.bytes) }
    }
}

@Suite(.within(minutes: 5)) struct TokenErrorTests {
    @Test(arguments: [
        (
            TokenError.malformed, 401, "The token provided is not a valid JWT",
            "MalformedJWT: The token provided is not a valid JWT", "The token provided is not a valid JWT"
        ),
        (
            .noKey(keyID: nil), 401,
            "Failed to generate JWT signer, check your JWT secret or JWKS configuration",
            "JwtSignerError: Failed to generate JWT signer, check your JWT secret or JWKS configuration",
            "Failed to generate JWT signer, check your JWT secret or JWKS configuration"
        ),
        (
            .noKey(keyID: "k1"), 401,
            "Failed to generate JWT signer for key ID (kid) \"k1\", check your JWT secret or JWKS configuration",
            "JwtSignerError: Failed to generate JWT signer for key ID (kid) \"k1\", "
                + "check your JWT secret or JWKS configuration",
            "Failed to generate JWT signer for key ID (kid) \"k1\", check your JWT secret or JWKS configuration"
        ),
        (
            .signature, 401, "Failed to validate JWT signature", "JwtSignatureError: Failed to validate JWT signature",
            ":signature_error"
        ),
        (
            .expired(secondsAgo: 12), 401, "Token has expired", "InvalidJWTToken: Token has expired 12 seconds ago",
            "Token has expired 12 seconds ago"
        ),
        (
            .claimsMissing, 401, "Fields `role` and `exp` are required in JWT",
            "InvalidJWTToken: Fields `role` and `exp` are required in JWT",
            "Fields `role` and `exp` are required in JWT"
        ),
        (
            .claimRefused, 500, "Error connecting to Realtime", "Unknown Error on Channel",
            "The token's claims were refused"
        ),
    ])
    func `has the words of the reference`(
        error: TokenError, status: Int, upgrade: String, join: String, message: String
    ) {
        #expect(error.upgradeStatus == status)
        #expect(error.upgradeText == upgrade)
        #expect(error.joinReason == join)
        #expect(error.systemMessage == message)
    }
}
