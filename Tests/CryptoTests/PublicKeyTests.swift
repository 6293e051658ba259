import Bytes
import TestSupport
import Testing

@testable import Crypto

/// Published signature in the form that tokens have: a key's numbers, the signed text, and the signature.
struct PublishedSignature: Sendable, CustomTestStringConvertible {
    let testDescription: String
    let numbers: [String]
    let signed: String
    let signature: String

    static let joe =
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"

    static let rs256 = PublishedSignature(
        testDescription: "RFC 7515 A.2",
        numbers: [
            "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZ"
                + "S-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTB"
                + "EMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91"
                + "kzk2PAcDTW9gb54h4FRWyuXpoQ",
            "AQAB",
        ],
        signed: "eyJhbGciOiJSUzI1NiJ9." + joe,
        signature:
            "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CU"
            + "Ar7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_d"
            + "O--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0ig"
            + "cN_IoypGlUPQGe77Rw")

    static let es256 = PublishedSignature(
        testDescription: "RFC 7515 A.3",
        numbers: ["f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"],
        signed: "eyJhbGciOiJFUzI1NiJ9." + joe,
        signature: "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q")

    static let es512 = PublishedSignature(
        testDescription: "RFC 7515 A.4",
        numbers: [
            "AekpBQ8ST8a8VcfVOTNl353vSrDCLLJXmPk06wTjxrrjcBpXp5EOnYG_NjFZ6OvLFV1jSfS9tsz4qUxcWceqwQGk",
            "ADSmRA43Z1DSNx_RvcLI87cdL07l6jQyyBXMoxVg_l2Th-x3S1WDhjDly79ajL4Kkd0AZMaZmh9ubmf63e3kyMj2",
        ],
        signed: "eyJhbGciOiJFUzUxMiJ9.UGF5bG9hZA",
        signature:
            "AdwMgeerwtHoh-l192l60hp9wAHZFVJbLfD_UxMi70cwnZOYaRI1bKPWROc-mZZqwqT2SI-KGDKB34XO0aw_7XdtAG8GaSwFKdCAPZgoXD2Y"
            + "BJZCPEX3xKpRwcdOO8KpEHwJjyqOgzDO7iKvU8vcnwNrmxYbSW9ERBXukOXolLzeO_Jn")

    static let edDSA = PublishedSignature(
        testDescription: "RFC 8037 A.4",
        numbers: ["11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"],
        signed: "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc",
        signature: "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg")
}

@Suite(.within(minutes: 5)) struct PublicKeyTests {
    private func decoded(_ text: String) throws -> [UInt8] { try #require(Base64URL.decode(text.utf8)) }

    private func key(_ published: PublishedSignature) throws -> PublicKey {
        let numbers = try published.numbers.map(decoded)
        switch numbers.map(\.count) {
        case [256, 3]: return try rsa(numbers[0], numbers[1])
        case [32, 32]: return try elliptic(.p256, numbers[0], numbers[1])
        case [66, 66]: return try elliptic(.p521, numbers[0], numbers[1])
        default: return try edwards(.ed25519, numbers[0])
        }
    }

    @Test(arguments: [
        (PublishedSignature.rs256, HashAlgorithm.sha256), (.es256, .sha256), (.es512, .sha512), (.edDSA, .sha256),
    ])
    func `accepts the published signatures and nothing beside them`(
        published: PublishedSignature, hash: HashAlgorithm
    ) throws {
        let key = try key(published)
        let message = Array(published.signed.utf8)
        let signature = try decoded(published.signature)
        #expect(verifies(key, signature, message, hash))
        #expect(!verifies(key, signature, message + [0], hash))
        #expect(!verifies(key, [], message, hash))
        #expect(!verifies(key, signature + [0], message, hash))
        #expect(!verifies(key, [0] + signature, message, hash))
        #expect(!verifies(key, [UInt8](repeating: 0, count: signature.count), message, hash))
        for index in signature.indices {
            var changed = signature
            changed[index] ^= 1
            #expect(!verifies(key, changed, message, hash), "byte \(index)")
        }
    }

    /// Checks the example "Blank" of RFC 8032 §7.4.
    @Test func `accepts the blank signature of Ed448`() throws {
        let publicKey = bytes(
            hex: "5fd7449b59b461fd2ce787ec616ad46a1da1342485a70e1f8a0ea75d80e96778edf124769b46c7061bd6783df1e50f6c"
                + "d1fa1abeafe8256180")
        let signature = bytes(
            hex: "533a37f6bbe457251f023c0d88f976ae2dfb504a843e34d2074fd823d41a591f2b233f034f628281f2fd7a22ddd47d78"
                + "28c59bd0a21bfd3980ff0d2028d4b18a9df63e006c5d1c2d345b925d8dc00b4104852db99ac5c7cdda8530a113a0f4db"
                + "b61149f05a7363268c71d95808ff2e652600")
        let key = try edwards(.ed448, publicKey)
        #expect(verifies(key, signature, [], .sha256))
        #expect(!verifies(key, signature, [0], .sha256))
    }

    /// Checks enough rounds to include numbers with leading zeros and numbers with a high first bit.
    @Test(arguments: [
        (SigningKey.Kind.p256, EllipticCurve.p256, 256), (.p384, .p384, 384), (.p521, .p521, 512),
    ])
    func `takes signatures of every length two numbers can have`(
        kind: SigningKey.Kind, curve: EllipticCurve, digestBits: Int
    ) throws {
        let signer = SigningKey(kind)
        let numbers = signer.publicNumbers
        let (x, y) = (try #require(numbers["x"]), try #require(numbers["y"]))
        let key = try elliptic(curve, x, y)
        let hash: HashAlgorithm = [256: .sha256, 384: .sha384, 512: .sha512][digestBits] ?? .sha256
        for round in 0..<600 {
            let message = Array("message \(round)".utf8)
            let signature = signer.sign(message, digestBits: digestBits)
            #expect(verifies(key, signature, message, hash))
        }
    }

    @Test func `takes every digest of RSA, each for itself`() throws {
        let signer = SigningKey(.rsa2048)
        let numbers = signer.publicNumbers
        let (n, e) = (try #require(numbers["n"]), try #require(numbers["e"]))
        let key = try rsa(n, e)
        let message = Array("message".utf8)
        let hashes: [(Int, HashAlgorithm)] = [(256, .sha256), (384, .sha384), (512, .sha512)]
        for (bits, hash) in hashes {
            let signature = signer.sign(message, digestBits: bits)
            for (otherBits, other) in hashes {
                #expect(verifies(key, signature, message, other) == (bits == otherBits), "\(hash) as \(other)")
            }
        }
    }

    @Test func `says what is wrong with a key's numbers`() throws {
        let modulus = try decoded(PublishedSignature.rs256.numbers[0])
        let point = try PublishedSignature.es256.numbers.map(decoded)
        #expect(refusal { () throws(PublicKeyError) in try rsa(modulus.dropLast(), [1, 0, 1]) } == .modulusBits(2040))
        let large = [1] + [UInt8](repeating: 0, count: 1024)
        #expect(refusal { () throws(PublicKeyError) in try rsa(large, [1, 0, 1]) } == .modulusBits(8193))
        for exponent: [UInt8] in [[], [0], [1], [2], [1, 0, 0], [UInt8](repeating: 255, count: 9)] {
            #expect(refusal { () throws(PublicKeyError) in try rsa(modulus, exponent) } == .exponent, "\(exponent)")
        }
        // An even number is not the product of two large primes.
        #expect(refusal { () throws(PublicKeyError) in try rsa(modulus.dropLast() + [2], [1, 0, 1]) } == .refused)
        #expect(
            refusal { () throws(PublicKeyError) in try elliptic(.p256, point[0].dropLast(), point[1]) }
                == .length(expected: 32, found: 31))
        #expect(
            refusal { () throws(PublicKeyError) in try elliptic(.p384, point[0], point[1]) }
                == .length(expected: 48, found: 32))
        // Swapped coordinates are no point of the curve.
        #expect(refusal { () throws(PublicKeyError) in try elliptic(.p256, point[1], point[0]) } == .refused)
        #expect(
            refusal { () throws(PublicKeyError) in try edwards(.ed448, point[0]) } == .length(expected: 57, found: 32))
    }

    private func refusal(_ make: () throws(PublicKeyError) -> PublicKey) -> PublicKeyError? {
        do throws(PublicKeyError) {
            _ = try make()
            return nil
        } catch {
            return error
        }
    }

    private func rsa(_ modulus: [UInt8], _ exponent: [UInt8]) throws(PublicKeyError) -> PublicKey {
        try PublicKey.rsa(modulus: modulus.span, exponent: exponent.span)
    }

    private func elliptic(_ curve: EllipticCurve, _ x: [UInt8], _ y: [UInt8]) throws(PublicKeyError) -> PublicKey {
        try PublicKey.elliptic(curve, x: x.span, y: y.span)
    }

    private func edwards(_ curve: EdwardsCurve, _ x: [UInt8]) throws(PublicKeyError) -> PublicKey {
        try PublicKey.edwards(curve, x: x.span)
    }

    private func verifies(
        _ key: PublicKey, _ signature: [UInt8], _ message: [UInt8], _ hash: HashAlgorithm
    ) -> Bool {
        key.verifies(signature.span, of: message.span, hashedWith: hash)
    }
}
