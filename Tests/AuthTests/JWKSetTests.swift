import Bytes
import TestSupport
import Testing

@testable import Auth

@Suite(.within(minutes: 5)) struct JWKSetTests {
    @Test func `reads every kind of key`() throws {
        let kinds = SigningKey.Kind.allCases
        let keys = kinds.enumerated().map {
            jwk(SigningKey($1), id: "k\($0)", extra: #","use":"sig","key_ops":["verify"]"#)
        }
        let set = try parsedKeySet("{\"x\":{\"keys\":1},\"keys\":[\(keys.joined(separator: ","))],\"y\":[]}")
        #expect(set.count == kinds.count)
        #expect(set.notes.isEmpty)
        #expect(try parsedKeySet(#" {"keys":[]} "#).count == 0)
    }

    /// Checks a key set as Supabase provides it: the shared secret next to a public key.
    @Test func `reads a set of the stack`() throws {
        let secret = Base64URL.encode(Array(secret.utf8).span)
        let key = SigningKey(.p256)
        let set = try keySet(
            "{\"kty\":\"oct\",\"kid\":\"old\",\"k\":\"\(secret)\",\"alg\":\"HS256\"}",
            jwk(key, id: "new", extra: #","alg":"ES256","ext":true,"d":"c2VjcmV0""#))
        let verifier = TokenVerifier(secret: nil, keys: set, maximumBytes: tokenLimit)
        #expect(verifier.accepts(Token.signed(Token.user, header: #"{"alg":"HS256","kid":"old"}"#)))
        #expect(
            verifier.accepts(
                Token.signed(Token.user, header: #"{"alg":"ES256","kid":"new"}"#, by: key, digestBits: 256)))
    }

    @Test(arguments: [
        (#"{"kty":"oct-hs","kid":"a"}"#, "key 1 (kid \"a\") is not used: its type oct-hs is not known"),
        (
            #"{"kty":"EC","crv":"secp256k1","kid":"a"}"#,
            "key 1 (kid \"a\") is not used: its curve secp256k1 is not one that signs tokens"
        ),
        (
            #"{"kty":"OKP","crv":"X25519","kid":"a"}"#,
            "key 1 (kid \"a\") is not used: its curve X25519 is not one that signs tokens"
        ),
        (#"{"kty":"RSA","use":"enc","kid":"a"}"#, "key 1 (kid \"a\") is not used: it is for encryption"),
        (#"{"kty":"RSA"}"#, "key 1 is not used: it has no \"kid\", by which tokens could name it"),
        (#"{"kty":"oct","kid":5}"#, "key 1 is not used: it has no \"kid\", by which tokens could name it"),
    ])
    func `passes over keys for other things and says so`(key: String, note: String) throws {
        let set = try keySet(key, jwk(SigningKey(.ed25519), id: "b"))
        #expect(set.count == 1)
        #expect(set.notes == [note])
    }

    @Test(arguments: [
        ("", "the key set is not {\"keys\": [{…}, …]}: expected a value at byte 0"),
        ("[]", "the key set is not {\"keys\": [{…}, …]}: expected an object at byte 0"),
        ("{}", "the key set is not {\"keys\": [{…}, …]}: expected a member \"keys\" at byte 2"),
        (#"{"keys":{}}"#, "the key set is not {\"keys\": [{…}, …]}: expected an array of keys at byte 9"),
        (#"{"keys":[1]}"#, "the key set is not {\"keys\": [{…}, …]}: expected a key at byte 10"),
        (#"{"keys":[]} x"#, "the key set is not {\"keys\": [{…}, …]}: expected nothing after the value at byte 12"),
        (#"{"keys":[{}]}"#, "key 1 of the key set: it has no \"kty\""),
        (#"{"keys":[{"kty":"oct","kid":"a"}]}"#, "key 1 (kid \"a\") of the key set: it has no \"k\""),
        (#"{"keys":[{"kty":"oct","kid":"a","k":""}]}"#, "key 1 (kid \"a\") of the key set: its \"k\" is empty"),
        (
            #"{"keys":[{"kty":"oct","kid":"a","k":"a+/="}]}"#,
            "key 1 (kid \"a\") of the key set: its \"k\" is not base64url without padding"
        ),
        (#"{"keys":[{"kty":"RSA","kid":"a","n":"AQAB"}]}"#, "key 1 (kid \"a\") of the key set: it has no \"e\""),
        (
            #"{"keys":[{"kty":"RSA","kid":"a","n":"AQAB","e":"AQAB"}]}"#,
            "key 1 (kid \"a\") of the key set: its modulus has 17 bits, where 2048 to 8192 are allowed"
        ),
        (#"{"keys":[{"kty":"EC","kid":"a"}]}"#, "key 1 (kid \"a\") of the key set: it has no \"crv\""),
        (
            #"{"keys":[{"kty":"EC","kid":"a","crv":"P-256","x":"AQAB","y":"AQAB"}]}"#,
            "key 1 (kid \"a\") of the key set: it has 3 bytes where its curve wants 32"
        ),
        (
            #"{"keys":[{"kty":"OKP","kid":"a","crv":"Ed448","x":"AQAB"}]}"#,
            "key 1 (kid \"a\") of the key set: it has 3 bytes where its curve wants 57"
        ),
    ])
    func `says which key is wrong and how`(text: String, complaint: String) {
        do throws(JWKSetError) {
            _ = try parsedKeySet(text)
            Issue.record("\(text) was taken")
        } catch {
            #expect(error.description == complaint)
        }
    }

    @Test func `keeps to its limits`() throws {
        let two = #"{"keys":[{"kty":"x"},{"kty":"y"}]}"#
        #expect(try parsedKeySet(two, maximumBytes: two.utf8.count, maximumKeys: 2).notes.count == 2)
        #expect(throws: JWKSetError.tooManyKeys(maximum: 1)) { try parsedKeySet(two, maximumKeys: 1) }
        #expect(throws: JWKSetError.tooLong(maximumBytes: 33)) { try parsedKeySet(two, maximumBytes: 33) }
    }
}
