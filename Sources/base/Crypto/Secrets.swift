import COpenSSL

/// Operations on secrets, which must not leak and must not be guessable.
public enum Secrets {
    /// True if two secrets are equal. The time of the comparison depends only on their lengths. Otherwise a client
    /// could measure how many bytes of a signature it has guessed.
    public static func areEqual(_ left: Span<UInt8>, _ right: Span<UInt8>) -> Bool {
        let length = left.count
        guard right.count == length else { return false }
        // SAFETY: both pointers are valid for the count given, which is the length of both, and are not kept.
        return unsafe left.withUnsafeBytes { left in
            unsafe right.withUnsafeBytes { right in
                guard let left = left.baseAddress, let right = right.baseAddress else { return true }
                return unsafe CRYPTO_memcmp(left, right, length) == 0
            }
        }
    }

    /// Returns random bytes from OpenSSL's generator, which the operating system's generator seeds.
    public static func randomBytes(_ count: Int) -> [UInt8] {
        precondition(count >= 0 && count <= Int32.max, "OpenSSL counts random bytes in 32 bits")
        var bytes = [UInt8](repeating: 0, count: count)
        // SAFETY: `bytes` has room for the `count` bytes that are written, and the pointer is not kept.
        let succeeded = unsafe RAND_bytes(&bytes, Int32(count))
        precondition(succeeded == 1, "a machine without randomness cannot keep secrets")
        return bytes
    }
}
