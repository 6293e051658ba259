import COpenSSL

/// SHA-256 and its keyed form (FIPS 180-4, RFC 2104): bytes in, 32 bytes out.
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
        precondition(key.count <= Int32.max, "OpenSSL counts a key's bytes in 32 bits")
        var code = [UInt8](repeating: 0, count: digestBytes)
        // SAFETY: both spans are valid inside the closures with the counts given, and `code` has the 32 bytes that are
        // written. No pointer is kept; the one returned is `code` itself and only tells success.
        let succeeded = unsafe key.withUnsafeBufferPointer { key in
            unsafe message.withUnsafeBufferPointer { message in
                unsafe HMAC(
                    EVP_sha256(), key.baseAddress, Int32(key.count), message.baseAddress, message.count, &code, nil)
                    != nil
            }
        }
        precondition(succeeded, "OpenSSL must offer HMAC-SHA-256")
        return code
    }
}
