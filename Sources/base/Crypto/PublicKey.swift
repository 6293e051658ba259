import COpenSSL

/// Public key that checks signatures. Many threads may use one key simultaneously.
@safe
public final class PublicKey: @unchecked Sendable {
    /// Permitted length of an RSA modulus in bits. RFC 7518 §3.3 requires at least 2048; the
    /// maximum keeps a check below 1 ms.
    public static let modulusBits = 2048...8192

    public enum Kind: Sendable, Equatable {
        case rsa
        case elliptic(EllipticCurve)
        case edwards(EdwardsCurve)
    }

    public let kind: Kind
    // Guarded by OpenSSL: an EVP_PKEY counts references atomically, and a signature check does not change the key.
    private let handle: OpaquePointer

    /// Takes ownership of the handle.
    init(_ kind: Kind, owning handle: OpaquePointer) {
        self.kind = kind
        // SAFETY: this object is the handle's one owner from now on.
        unsafe self.handle = handle
    }

    deinit {
        // SAFETY: the handle is this object's own and is not used after this.
        unsafe EVP_PKEY_free(handle)
    }

    /// True if the numbers form a valid key: the point is on its curve, the modulus is not a prime.
    var isSound: Bool {
        // SAFETY: the context is made, used and freed here; the handle is this object's.
        guard let context = unsafe EVP_PKEY_CTX_new(handle, nil) else {
            preconditionFailure("there must be memory to look at a key")
        }
        defer { unsafe EVP_PKEY_CTX_free(context) }
        return unsafe EVP_PKEY_public_check(context) == 1
    }

    /// True if the holder of the private key signed this message. The signature has the form of JSON Web Signatures
    /// (RFC 7518 §3.3 and §3.4, RFC 8037 §3.1). EdDSA has its own digest and ignores `hash`.
    public func verifies(
        _ signature: Span<UInt8>, of message: Span<UInt8>, hashedWith hash: HashAlgorithm = .sha256
    ) -> Bool {
        switch kind {
        // SAFETY: a digest's description lives as long as the program; nil asks for the key's own.
        case .rsa: return unsafe check(signature, of: message, hash.method)
        case .edwards: return unsafe check(signature, of: message, nil)
        case .elliptic(let curve):
            guard let encoded = ECDSASignature.encode(signature, of: curve) else { return false }
            return unsafe check(encoded.span, of: message, hash.method)
        }
    }

    private func check(_ signature: Span<UInt8>, of message: Span<UInt8>, _ digest: OpaquePointer?) -> Bool {
        // SAFETY: the context is made, used and freed here.
        guard let context = unsafe EVP_MD_CTX_new() else { preconditionFailure("there must be memory for a digest") }
        defer { unsafe EVP_MD_CTX_free(context) }
        // A refusal adds entries to this thread's OpenSSL error queue. TLS would later report them as its own errors.
        defer { ERR_clear_error() }
        guard unsafe EVP_DigestVerifyInit(context, nil, digest, nil, handle) == 1 else { return false }
        // SAFETY: both spans are valid inside the closures with the counts given; OpenSSL keeps no pointer.
        return unsafe signature.withUnsafeBufferPointer { signature in
            unsafe message.withUnsafeBufferPointer { message in
                unsafe EVP_DigestVerify(
                    context, signature.baseAddress, signature.count, message.baseAddress, message.count) == 1
            }
        }
    }
}
