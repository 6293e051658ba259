import COpenSSL

/// SHA-1 (FIPS 180-4), which the handshake of WebSocket requires (RFC 6455 §4.2.2). It protects no secret here.
public enum SHA1 {
    public static let digestBytes = 20

    public static func digest(of message: Span<UInt8>) -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: digestBytes)
        // SAFETY: the span is valid inside the closure, OpenSSL reads `count` bytes of it and writes 20 bytes to
        // `digest`, which has as many. It keeps neither pointer.
        let succeeded = unsafe message.withUnsafeBufferPointer { message in
            unsafe EVP_Digest(message.baseAddress, message.count, &digest, nil, EVP_sha1(), nil)
        }
        precondition(succeeded == 1, "OpenSSL must offer SHA-1")
        return digest
    }
}
