import COpenSSL

/// SHA-2 digests that token signatures use (FIPS 180-4), and their keyed form.
public enum HashAlgorithm: Sendable {
    case sha256, sha384, sha512

    public var digestBytes: Int {
        switch self {
        case .sha256: 32
        case .sha384: 48
        case .sha512: 64
        }
    }

    /// OpenSSL's description of the digest, which lives as long as the program.
    var method: OpaquePointer? {
        // SAFETY: the calls take nothing and answer a pointer to something static.
        switch self {
        case .sha256: unsafe EVP_sha256()
        case .sha384: unsafe EVP_sha384()
        case .sha512: unsafe EVP_sha512()
        }
    }

    /// Returns the message's HMAC (RFC 2104) under a key of any length.
    public func authenticationCode(of message: Span<UInt8>, key: Span<UInt8>) -> [UInt8] {
        precondition(key.count <= Int32.max, "OpenSSL counts a key's bytes in 32 bits")
        var code = [UInt8](repeating: 0, count: digestBytes)
        // An empty key has no address, and OpenSSL reads a null key as "the key of the last call".
        let noKey: [UInt8] = [0]
        let length = key.count
        let key = length == 0 ? noKey.span : key
        // SAFETY: both spans are valid inside the closures with the counts given, and `code` has the bytes of the digest
        // that are written. No pointer is kept; the one returned is `code` itself and only tells success.
        let succeeded = unsafe key.withUnsafeBufferPointer { key in
            unsafe message.withUnsafeBufferPointer { message in
                unsafe HMAC(
                    method, key.baseAddress, Int32(length), message.baseAddress, message.count, &code, nil) != nil
            }
        }
        precondition(succeeded, "OpenSSL must offer HMAC with the SHA-2 digests")
        return code
    }
}
