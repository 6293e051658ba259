import COpenSSL

/// Ed25519 keys made from their seeds (RFC 8032 §5.1.5).
public enum Ed25519 {
    public static let keyBytes = 32

    /// Returns the public key of a seed; nil if the seed does not have 32 bytes.
    public static func publicKey(ofSeed seed: [UInt8]) -> [UInt8]? {
        guard seed.count == keyBytes else { return nil }
        defer { ERR_clear_error() }
        // SAFETY: OpenSSL copies the seed's bytes, whose count is given; the handle is freed below and used nowhere else.
        guard let key = unsafe EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nil, seed, seed.count) else { return nil }
        defer { unsafe EVP_PKEY_free(key) }
        var bytes = [UInt8](repeating: 0, count: keyBytes)
        var count = bytes.count
        // SAFETY: OpenSSL writes at most `count` bytes, the length of the array.
        guard unsafe EVP_PKEY_get_raw_public_key(key, &bytes, &count) == 1, count == keyBytes else { return nil }
        return bytes
    }
}
