import Bytes
import FuzzSupport

@testable import Auth
@testable import Crypto

@_cdecl("LLVMFuzzerInitialize")
public func initialize(_ count: UnsafeMutablePointer<CInt>, _ arguments: UnsafeRawPointer) -> CInt {
    let token = JWT.sign(claims: claims.span, secret: secret.span)
    writeSeeds([
        [0] + Array(token.utf8), [0] + Array("sb_publishable_x".utf8), [1] + claims,
        [1] + Array(#"{"role":"anon","exp":1.8e9,"iat":0.5,"iss":null,"sub":"\u0000"}"#.utf8),
        [2] + Array(#"{"alg":"HS256","kid":"own"}"#.utf8), [2] + Array(#"{"alg":"ES256","kid":"k","crit":[]}"#.utf8),
        [3] + Array(keySet.utf8),
    ])
    return 0
}

/// Fuzz target of the token verifier. Input: a byte that selects the kind of the rest, then a token, claims that the
/// target signs, the header of a token, or a key set.
@_cdecl("LLVMFuzzerTestOneInput")
public func test(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = input(start, count)
    guard let pick = bytes.first else { return 0 }
    let rest = Array(bytes.dropFirst())
    switch pick & 3 {
    case 0: check(rest)
    case 1: checkClaims(rest)
    case 2: check(Array(JWT.sign(header: rest.span, claims: claims.span, secret: secret.span).utf8))
    default: checkKeySet(rest)
    }
    return 0
}

private let now: Int64 = 1_799_999_999
private let limit = 4096
private let secret = Array("secret".utf8)
private let claims = Array(#"{"role":"anon","exp":1800000000,"sub":"a","iss":"me"}"#.utf8)
private let keySet =
    #"{"keys":[{"kty":"oct","kid":"own","k":"c2VjcmV0"},{"kty":"EC","crv":"P-256","kid":"k","#
    + #""x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"},"#
    + #"{"kty":"OKP","crv":"Ed25519","kid":"e","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#

private let verifier: TokenVerifier = {
    let bytes = Array(keySet.utf8)
    guard let keys = try? JWKSet.parse(bytes.span.bytes, maximumBytes: limit, maximumKeys: 4) else {
        fatalError("the seed is a key set")
    }
    return TokenVerifier(
        secret: "secret", keys: keys, expectations: ClaimExpectations(["iss": .string("me")]),
        opaqueKeys: ["sb_publishable_x": .role("anon")], maximumBytes: limit)
}()

/// Checks an accepted token: it must be signed with the secret, or with the only known key.
private func check(_ token: [UInt8]) {
    do throws(TokenError) {
        let found = try verifier.verify(token.span.bytes, at: now)
        checkSound(found)
        guard let text = TokenText(token.span.bytes) else {
            return precondition(token == Array("sb_publishable_x".utf8), "what has no parts was taken")
        }
        let code = HashAlgorithm.sha256.authenticationCode(of: text.signed, key: secret.span)
        let longer = [HashAlgorithm.sha384, .sha512].map { $0.authenticationCode(of: text.signed, key: secret.span) }
        precondition(([code] + longer).contains(text.signature), "a forged token was taken")
    } catch {
        precondition(!error.joinReason.isEmpty && !error.upgradeText.isEmpty && !error.systemMessage.isEmpty)
    }
}

/// Signs the claims and checks the result: a token may be refused only for its claims, and accepted claims must be
/// unchanged.
private func checkClaims(_ claims: [UInt8]) {
    let token = Array(JWT.sign(claims: claims.span, secret: secret.span).utf8)
    do throws(TokenError) {
        let found = try verifier.verify(token.span.bytes, at: now)
        checkSound(found)
        precondition(found.json.copied() == claims, "claims were changed")
    } catch {
        precondition(error != .signature && error != .noKey(keyID: nil), "a good signature was refused")
    }
}

private func checkSound(_ claims: Claims) {
    precondition(claims.expiry > now && claims.expiry <= Claims.latestExpiry, "a token without an end")
    precondition(claims.role.byteCount > 0, "a token without a role")
    let (role, subject) = (claims.role.copied(), claims.subject.copied())
    precondition(!role.contains(0) && !subject.contains(0), "a name that C cuts short")
    precondition(ClaimReading.isObject(claims.json), "claims that are no object")
}

private func checkKeySet(_ text: [UInt8]) {
    do throws(JWKSetError) {
        let set = try JWKSet.parse(text.span.bytes, maximumBytes: limit, maximumKeys: 4)
        precondition(set.count + set.notes.count <= 4, "more keys than there may be")
    } catch {
        precondition(!error.description.isEmpty)
    }
}
