import COpenSSL

/// Private key of a test, for signatures that the hub's code only verifies. The public part is available as the numbers
/// of a JSON Web Key.
public final class SigningKey: @unchecked Sendable {
    public enum Kind: Sendable, CaseIterable {
        case rsa2048, p256, p384, p521, ed25519, ed448
    }

    public let kind: Kind
    // The handle never changes after `init`.
    private let handle: OpaquePointer

    public init(_ kind: Kind) {
        self.kind = kind
        let context = EVP_PKEY_CTX_new_from_name(nil, Self.algorithm(kind), nil)
        defer { EVP_PKEY_CTX_free(context) }
        var key: OpaquePointer?
        precondition(EVP_PKEY_keygen_init(context) == 1, "OpenSSL makes keys")
        if let group = Self.group(kind) { precondition(EVP_PKEY_CTX_set_group_name(context, group) == 1, "and these") }
        precondition(EVP_PKEY_keygen(context, &key) == 1, "OpenSSL makes keys")
        guard let key else { preconditionFailure("OpenSSL makes keys") }
        handle = key
    }

    deinit { EVP_PKEY_free(handle) }

    private static func algorithm(_ kind: Kind) -> String {
        switch kind {
        case .rsa2048: "RSA"
        case .p256, .p384, .p521: "EC"
        case .ed25519: "ED25519"
        case .ed448: "ED448"
        }
    }

    private static func group(_ kind: Kind) -> String? {
        switch kind {
        case .p256: "P-256"
        case .p384: "P-384"
        case .p521: "P-521"
        default: nil
        }
    }

    /// Signs the message. `digestBits` is the number in the algorithm's name: 256, 384 or 512; nil for EdDSA.
    public func sign(_ message: [UInt8], digestBits: Int?) -> [UInt8] {
        let context = EVP_MD_CTX_new()
        defer { EVP_MD_CTX_free(context) }
        let digest =
            switch digestBits {
            case 256: EVP_sha256()
            case 384: EVP_sha384()
            case 512: EVP_sha512()
            default: nil as OpaquePointer?
            }
        precondition(EVP_DigestSignInit(context, nil, digest, nil, handle) == 1, "OpenSSL signs")
        var length = 0
        precondition(EVP_DigestSign(context, nil, &length, message, message.count) == 1, "OpenSSL signs")
        var signature = [UInt8](repeating: 0, count: length)
        precondition(EVP_DigestSign(context, &signature, &length, message, message.count) == 1, "OpenSSL signs")
        signature.removeLast(signature.count - length)
        return coordinateBytes.map { Self.sideBySide(signature, $0) } ?? signature
    }

    public var coordinateBytes: Int? {
        switch kind {
        case .p256: 32
        case .p384: 48
        case .p521: 66
        default: nil
        }
    }

    /// Converts a signature from DER to the form used in tokens.
    private static func sideBySide(_ encoded: [UInt8], _ half: Int) -> [UInt8] {
        var bytes: UnsafePointer<UInt8>?
        return encoded.withUnsafeBufferPointer { buffer in
            bytes = buffer.baseAddress
            let pair = d2i_ECDSA_SIG(nil, &bytes, buffer.count)
            defer { ECDSA_SIG_free(pair) }
            return [ECDSA_SIG_get0_r(pair), ECDSA_SIG_get0_s(pair)].flatMap { number in
                var padded = [UInt8](repeating: 0, count: half)
                BN_bn2binpad(number, &padded, Int32(half))
                return padded
            }
        }
    }

    /// Public numbers of the key: `n` and `e`, `x` and `y`, or `x` alone.
    public var publicNumbers: [String: [UInt8]] {
        switch kind {
        case .rsa2048: ["n": number("n"), "e": number("e")]
        case .p256, .p384, .p521: ["x": number("qx", coordinateBytes), "y": number("qy", coordinateBytes)]
        case .ed25519: ["x": rawPublicKey(32)]
        case .ed448: ["x": rawPublicKey(57)]
        }
    }

    private func number(_ name: String, _ bytes: Int? = nil) -> [UInt8] {
        var number: OpaquePointer?
        precondition(EVP_PKEY_get_bn_param(handle, name, &number) == 1, "a key has its numbers")
        defer { BN_free(number) }
        var bytes = [UInt8](repeating: 0, count: bytes ?? (Int(BN_num_bits(number)) + 7) / 8)
        BN_bn2binpad(number, &bytes, Int32(bytes.count))
        return bytes
    }

    private func rawPublicKey(_ count: Int) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        var length = count
        precondition(EVP_PKEY_get_raw_public_key(handle, &bytes, &length) == 1, "a key has its numbers")
        return bytes
    }
}
