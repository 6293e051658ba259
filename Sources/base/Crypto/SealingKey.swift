import COpenSSL

/// A key that keeps what is stored secret and whole: bytes in, sealed bytes out, and back. AES-256 in Galois/Counter Mode
/// (NIST SP 800-38D), in the layout nonce ‖ tag ‖ ciphertext.
///
/// The nonce is derived from the message by a second key, so the same message is sealed to the same bytes: whoever sees them
/// learns that two are equal, and nothing else, and no nonce comes twice for two messages.
public struct SealingKey: Sendable {
    public static let nonceBytes = 12
    public static let tagBytes = 16
    public static let keyBytes = 32

    private let cipherKey: [UInt8]
    private let nonceKey: [UInt8]

    /// A key out of any bytes; those for two purposes do not open each other's seals.
    public init(from secret: Span<UInt8>, for purpose: String) {
        cipherKey = SHA256.authenticationCode(of: Array((purpose + " cipher").utf8).span, key: secret)
        nonceKey = SHA256.authenticationCode(of: Array((purpose + " nonce").utf8).span, key: secret)
    }

    /// What is sealed for one place is refused at another.
    public func seal(_ message: Span<UInt8>, for place: Span<UInt8>) -> [UInt8] {
        let nonce = nonce(for: message, at: place)
        var cipher = Cipher(cipherKey, nonce, isSealing: true)
        cipher.look(at: place)
        let text = cipher.run(message)
        precondition(cipher.finish(), "sealing cannot fail once the key is set")
        return nonce + cipher.tag() + text
    }

    /// Nil for what was not sealed by this key for this place, or is not what it was.
    public func open(_ sealed: Span<UInt8>, for place: Span<UInt8>) -> [UInt8]? {
        let headBytes = Self.nonceBytes + Self.tagBytes
        guard sealed.count >= headBytes else { return nil }
        let nonce = sealed.extracting(0..<Self.nonceBytes).copied()
        var cipher = Cipher(cipherKey, nonce, isSealing: false)
        cipher.look(at: place)
        let message = cipher.run(sealed.extracting(headBytes..<sealed.count))
        cipher.expect(tag: sealed.extracting(Self.nonceBytes..<headBytes).copied())
        return cipher.finish() ? message : nil
    }

    /// The lengths stand before the parts, so that no two pairs of them make the same bytes.
    private func nonce(for message: Span<UInt8>, at place: Span<UInt8>) -> [UInt8] {
        var bytes = withBytes(of: UInt64(place.count))
        bytes += place.copied()
        bytes += message.copied()
        return Array(SHA256.authenticationCode(of: bytes.span, key: nonceKey.span).prefix(Self.nonceBytes))
    }

    private func withBytes(of count: UInt64) -> [UInt8] {
        (0..<8).map { UInt8(truncatingIfNeeded: count >> UInt64(8 * $0)) }
    }
}

extension SealingKey: CustomStringConvertible, CustomReflectable {
    public var description: String { "SealingKey" }

    /// It is a secret, so nothing of it is shown.
    public var customMirror: Mirror { Mirror(self, children: []) }
}

extension Span<UInt8> {
    fileprivate func copied() -> [UInt8] {
        // SAFETY: the buffer is used inside the closure only; Array copies it.
        unsafe withUnsafeBufferPointer { unsafe Array($0) }
    }
}

/// One run of OpenSSL's AES-256-GCM. That a call fails would mean that there is no memory or no such cipher: both are
/// preconditions of this program.
@safe
private struct Cipher: ~Copyable {
    private let context: OpaquePointer
    private let isSealing: Bool

    init(_ key: [UInt8], _ nonce: [UInt8], isSealing: Bool) {
        precondition(key.count == SealingKey.keyBytes && nonce.count == SealingKey.nonceBytes, "AES-256-GCM's sizes")
        // SAFETY: the context is freed in `deinit`, by its only owner; so in all calls below.
        guard let context = unsafe EVP_CIPHER_CTX_new() else {
            preconditionFailure("there must be memory for a cipher")
        }
        unsafe self.context = context
        self.isSealing = isSealing
        // SAFETY: the arrays have the sizes that this cipher reads, and live for the call.
        let succeeded = unsafe EVP_CipherInit_ex(context, EVP_aes_256_gcm(), nil, key, nonce, isSealing ? 1 : 0)
        precondition(succeeded == 1, "OpenSSL must offer AES-256-GCM")
    }

    deinit {
        // SAFETY: ours alone, and not used after this.
        unsafe EVP_CIPHER_CTX_free(context)
    }

    /// What is not encrypted and must be the same when it is opened.
    mutating func look(at place: Span<UInt8>) {
        var count: Int32 = 0
        // SAFETY: OpenSSL reads the span's bytes inside the closure; without an output it only authenticates them.
        let succeeded = unsafe place.withUnsafeBufferPointer {
            unsafe EVP_CipherUpdate(context, nil, &count, $0.baseAddress, Int32($0.count))
        }
        precondition(succeeded == 1 || place.isEmpty, "authenticating cannot fail")
    }

    mutating func run(_ bytes: Span<UInt8>) -> [UInt8] {
        precondition(bytes.count <= Int32.max, "OpenSSL counts bytes in 32 bits")
        guard !bytes.isEmpty else { return [] }
        var output = [UInt8](repeating: 0, count: bytes.count)
        var count: Int32 = 0
        // SAFETY: GCM writes as many bytes as it reads, for which `output` has room; no pointer is kept.
        let succeeded = unsafe bytes.withUnsafeBufferPointer {
            unsafe EVP_CipherUpdate(context, &output, &count, $0.baseAddress, Int32($0.count))
        }
        precondition(succeeded == 1 && Int(count) == bytes.count, "GCM cannot fail before its tag")
        return output
    }

    mutating func expect(tag: [UInt8]) {
        var tag = tag
        // SAFETY: OpenSSL copies the tag's bytes, of which there are as many as it is told.
        let succeeded = unsafe EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, Int32(tag.count), &tag)
        precondition(succeeded == 1, "a tag of 16 bytes is always taken")
    }

    /// Whether the tag is the expected one, or, when sealing, whether there is one now.
    mutating func finish() -> Bool {
        var rest = [UInt8](repeating: 0, count: 16)
        var count: Int32 = 0
        // SAFETY: GCM writes nothing here; there is room for a block all the same.
        let succeeded = unsafe EVP_CipherFinal_ex(context, &rest, &count)
        // What was refused is left in this thread's queue of errors, where TLS would take it for its own.
        ERR_clear_error()
        return succeeded == 1
    }

    mutating func tag() -> [UInt8] {
        var tag = [UInt8](repeating: 0, count: SealingKey.tagBytes)
        // SAFETY: the array has room for the bytes that are asked for.
        let succeeded = unsafe EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, Int32(tag.count), &tag)
        precondition(succeeded == 1, "there is a tag after the last byte")
        return tag
    }
}
