import COpenSSL

/// SHA-256 and its keyed form (FIPS 180-4, RFC 2104). Both return 32 bytes.
public enum SHA256 {
    public static let digestBytes = 32

    public static func digest(of message: Span<UInt8>) -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: digestBytes)
        // SAFETY: the span is valid inside the closure, OpenSSL reads `count` bytes of it and writes 32 bytes to `digest`,
        // which has as many. It keeps neither pointer.
        let succeeded = unsafe message.withUnsafeBufferPointer { message in
            unsafe EVP_Digest(message.baseAddress, message.count, &digest, nil, EVP_sha256(), nil)
        }
        precondition(succeeded == 1, "OpenSSL must offer SHA-256")
        return digest
    }

    public static func authenticationCode(of message: Span<UInt8>, key: Span<UInt8>) -> [UInt8] {
        HashAlgorithm.sha256.authenticationCode(of: message, key: key)
    }
}
