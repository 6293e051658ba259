import COpenSSL

/// Key that encrypts and authenticates stored data. Uses AES-256 in Galois/Counter Mode (NIST SP 800-38D). Sealed data
/// is nonce ‖ tag ‖ ciphertext.
///
/// A second key derives the nonce from the message, so equal messages give equal sealed bytes. An observer learns only
/// that two messages are equal. No nonce is used for two different messages.
public struct SealingKey: Sendable {
    public static let nonceBytes = 12
    public static let tagBytes = 16
    public static let keyBytes = 32

    private let cipherKey: [UInt8]
    private let nonceKey: [UInt8]

    /// Derives a key from any bytes. A key cannot open data that was sealed with a key for another purpose.
    public init(from secret: Span<UInt8>, for purpose: String) {
        cipherKey = SHA256.authenticationCode(of: Array((purpose + " cipher").utf8).span, key: secret)
        nonceKey = SHA256.authenticationCode(of: Array((purpose + " nonce").utf8).span, key: secret)
    }

    /// Encrypts the message for one place, such as a file name. `open` refuses the result for any other place.
    public func seal(_ message: Span<UInt8>, for place: Span<UInt8>) -> [UInt8] {
        let nonce = nonce(for: message, at: place)
        var cipher = Cipher(cipherKey, nonce, isSealing: true)
        cipher.look(at: place)
        let text = cipher.run(message)
        precondition(cipher.finish(), "sealing cannot fail once the key is set")
        return nonce + cipher.tag() + text
    }

    /// Decrypts sealed bytes. Returns nil if they were changed, or were not sealed with this key for this place.
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

    /// Derives the nonce. The place's length comes first, so that no two pairs of place
    /// and message give the same bytes.
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

    /// Empty mirror, so that no dump shows the secret.
    public var customMirror: Mirror { Mirror(self, children: []) }
}

extension Span<UInt8> {
    fileprivate func copied() -> [UInt8] {
        // SAFETY: the buffer is used inside the closure only; Array copies it.
        unsafe withUnsafeBufferPointer { unsafe Array($0) }
    }
}

/// Run of OpenSSL's AES-256-GCM. A call fails only without memory or without this cipher; both are
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

    /// Adds data that is authenticated but not encrypted. Opening the message needs the same data.
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

    /// Completes the operation. When opening, returns true if the tag is the expected one. When sealing, returns true
    /// if the tag was computed.
    mutating func finish() -> Bool {
        var rest = [UInt8](repeating: 0, count: 16)
        var count: Int32 = 0
        // SAFETY: GCM writes nothing here; there is room for a block all the same.
        let succeeded = unsafe EVP_CipherFinal_ex(context, &rest, &count)
        // A refusal adds entries to this thread's OpenSSL error queue. TLS would later report them as its own errors.
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
