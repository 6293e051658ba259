import TestSupport
import Testing

@testable import Crypto

func bytes(hex: String) -> [UInt8] {
    let digits = hex.compactMap(\.hexDigitValue)
    return stride(from: 0, to: digits.count, by: 2).map { UInt8(digits[$0] * 16 + digits[$0 + 1]) }
}

@Suite(.within(minutes: 5)) struct SHA256Tests {
    /// Checks the examples of FIPS 180-4.
    @Test(arguments: [
        ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (
            "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
        ),
    ])
    func `digests the published examples`(message: String, digest: String) {
        let found = SHA256.digest(of: Array(message.utf8).span)
        #expect(found == bytes(hex: digest))
    }

    struct Vector: Sendable {
        let key: [UInt8]
        let message: [UInt8]
        let code: String
    }

    /// Test vectors of RFC 4231 §4, cases 1–4, 6 and 7 (5 is about truncated output), and an empty key.
    static let vectors: [Vector] = [
        Vector(
            key: Array(repeating: 0x0B, count: 20), message: Array("Hi There".utf8),
            code: "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
        Vector(
            key: Array("Jefe".utf8), message: Array("what do ya want for nothing?".utf8),
            code: "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
        Vector(
            key: Array(repeating: 0xAA, count: 20), message: Array(repeating: 0xDD, count: 50),
            code: "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"),
        Vector(
            key: Array(1...25), message: Array(repeating: 0xCD, count: 50),
            code: "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"),
        Vector(
            key: Array(repeating: 0xAA, count: 131),
            message: Array("Test Using Larger Than Block-Size Key - Hash Key First".utf8),
            code: "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"),
        Vector(
            key: Array(repeating: 0xAA, count: 131),
            message: Array(
                ("This is a test using a larger than block-size key and a larger than block-size data. "
                    + "The key needs to be hashed before being used by the HMAC algorithm.").utf8),
            code: "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"),
        Vector(
            key: [], message: [],
            code: "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad"),
    ]

    @Test(arguments: vectors)
    func `authenticates the messages of RFC 4231`(vector: Vector) {
        let code = SHA256.authenticationCode(of: vector.message.span, key: vector.key.span)
        #expect(code == bytes(hex: vector.code))
    }
}

@Suite(.within(minutes: 5)) struct HashAlgorithmTests {
    /// Test vectors of RFC 4231 §4, cases 1 and 2.
    static let vectors: [(HashAlgorithm, key: [UInt8], message: String, code: String)] = [
        (
            .sha384, Array(repeating: 0x0B, count: 20), "Hi There",
            "afd03944d84895626b0825f4ab46907f15f9dadbe4101ec682aa034c7cebc59cfaea9ea9076ede7f4af152e8b2fa9cb6"
        ),
        (
            .sha512, Array(repeating: 0x0B, count: 20), "Hi There",
            "87aa7cdea5ef619d4ff0b4241a1d6cb02379f4e2ce4ec2787ad0b30545e17cde"
                + "daa833b7d6b8a702038b274eaea3f4e4be9d914eeb61f1702e696c203a126854"
        ),
        (
            .sha384, Array("Jefe".utf8), "what do ya want for nothing?",
            "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e8e2240ca5e69e2c78b3239ecfab21649"
        ),
        (
            .sha512, Array("Jefe".utf8), "what do ya want for nothing?",
            "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554"
                + "9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737"
        ),
    ]

    @Test(arguments: vectors)
    func `authenticates the messages of RFC 4231`(
        hash: HashAlgorithm, key: [UInt8], message: String, code: String
    ) {
        let found = hash.authenticationCode(of: Array(message.utf8).span, key: key.span)
        #expect(found == bytes(hex: code))
    }
}

@Suite(.within(minutes: 5)) struct SecretsTests {
    @Test func `compares whole secrets`() {
        #expect(areEqual([1, 2, 3], [1, 2, 3]))
        #expect(!areEqual([1, 2, 3], [1, 2, 4]))
        #expect(!areEqual([1, 2, 3], [1, 2]))
        #expect(areEqual([], []))
    }

    /// True if both are equal. `#expect` does not accept expressions that contain spans.
    private func areEqual(_ left: [UInt8], _ right: [UInt8]) -> Bool {
        Secrets.areEqual(left.span, right.span)
    }

    @Test func `draws as many random bytes as asked, never the same`() {
        #expect(Secrets.randomBytes(0).isEmpty)
        #expect(Secrets.randomBytes(33).count == 33)
        #expect(Secrets.randomBytes(16) != Secrets.randomBytes(16))
    }
}

@Suite(.within(minutes: 5)) struct JWTTests {
    /// Checks RFC 7515, Appendix A.1: its header and claims contain line breaks, which are part of the signed text.
    @Test func `signs the example of RFC 7515`() {
        let header = Array("{\"typ\":\"JWT\",\r\n \"alg\":\"HS256\"}".utf8)
        let claims = Array(
            "{\"iss\":\"joe\",\r\n \"exp\":1300819380,\r\n \"http://example.com/is_root\":true}".utf8)
        let secret = bytes(
            hex: "0323354b2b0fa5bc837e0665777ba68f5ab328e6f054c928a90f84b2d2502ebf"
                + "d3fb5a92d20647ef968ab4c377623d223d2e2172052e4f08c0cd9af567d080a3")
        let token = JWT.sign(header: header.span, claims: claims.span, secret: secret.span)
        #expect(
            token
                == "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9"
                + ".eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
                + ".dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk")
    }

    @Test func `puts its own header before the claims`() {
        let token = JWT.sign(claims: Array(#"{"role":"anon"}"#.utf8).span, secret: Array("secret".utf8).span)
        #expect(token.hasPrefix("eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJyb2xlIjoiYW5vbiJ9."))
        #expect(token.split(separator: ".").last?.count == 43)
    }
}

@Suite(.within(minutes: 5)) struct SHA1Tests {
    /// Checks the examples of FIPS 180-4.
    @Test(arguments: [
        ("", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        ("abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
        ("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", "84983e441c3bd26ebaae4aa1f95129e5e54670f1"),
    ])
    func `digests the published examples`(message: String, digest: String) {
        let found = SHA1.digest(of: Array(message.utf8).span)
        #expect(found == bytes(hex: digest))
    }
}
