import COpenSSL

/// Error for a certificate or key that cannot be used: the file, and OpenSSL's reason.
public struct TLSConfigurationError: Error, Sendable, CustomStringConvertible {
    public let path: String
    public let reason: String

    public var description: String { "\(path): \(reason)" }
}

/// Settings common to all TLS sessions of a server or a client: a server's certificate and key, or the certificates
/// that a client trusts, and the permitted versions (TLS 1.2 and later).
@safe
public final class TLSContext: @unchecked Sendable {
    // OpenSSL counts references to a context under its own lock; after `init` the context is only read.
    private let context: OpaquePointer

    /// Creates a server's context from a certificate chain and its key, both PEM files.
    public init(certificate: String, key: String) throws(TLSConfigurationError) {
        ERR_clear_error()
        // SAFETY: the context is freed in `deinit`, which also runs when this initializer throws from here on.
        guard let context = unsafe tw_server_context() else {
            throw TLSConfigurationError(path: certificate, reason: TLSContext.lastReason())
        }
        unsafe self.context = context
        // SAFETY: Swift passes C strings that live for the calls.
        guard unsafe SSL_CTX_use_certificate_chain_file(context, certificate) == 1 else {
            throw TLSConfigurationError(path: certificate, reason: TLSContext.lastReason())
        }
        guard unsafe tw_use_key(context, key) == 1, unsafe SSL_CTX_check_private_key(context) == 1 else {
            throw TLSConfigurationError(path: key, reason: TLSContext.lastReason())
        }
    }

    /// Creates a client's context that trusts the system's certificates, and those in a PEM file if one is given.
    public init(trusting certificates: String?) throws(TLSConfigurationError) {
        ERR_clear_error()
        // SAFETY: as above; the C string lives for the call.
        guard let context = unsafe tw_client_context(certificates) else {
            throw TLSConfigurationError(
                path: certificates ?? "the system's certificates", reason: TLSContext.lastReason())
        }
        unsafe self.context = context
    }

    deinit {
        // SAFETY: our reference; sessions that still run have their own.
        unsafe SSL_CTX_free(context)
    }

    /// Creates the server's side of a session on a connected socket. Nil if there is no memory for it.
    public func session(on descriptor: Int32) -> TLSSession? {
        // SAFETY: the session owns what `SSL_new` made and frees it once.
        guard let ssl = unsafe SSL_new(context) else { return nil }
        guard unsafe tw_set_socket(ssl, descriptor) == 1 else {
            unsafe SSL_free(ssl)
            return nil
        }
        unsafe SSL_set_accept_state(ssl)
        return unsafe TLSSession(ssl)
    }

    /// Creates the client's side of a session with the named host or address. Nil if there is no memory for it.
    public func session(on descriptor: Int32, expecting host: String) -> TLSSession? {
        // SAFETY: the session owns what `SSL_new` made and frees it once; the C string lives for the call.
        guard let ssl = unsafe SSL_new(context) else { return nil }
        guard unsafe tw_set_socket(ssl, descriptor) == 1, unsafe tw_expect_host(ssl, host) == 1 else {
            unsafe SSL_free(ssl)
            return nil
        }
        unsafe SSL_set_connect_state(ssl)
        return unsafe TLSSession(ssl)
    }

    /// Returns OpenSSL's text for the first error in the queue.
    private static func lastReason() -> String {
        let code = ERR_get_error()
        ERR_clear_error()
        // SAFETY: reasons are constants of the library, or null.
        guard code != 0, let text = unsafe ERR_reason_error_string(code) else { return "cannot be read" }
        return unsafe String(cString: text)
    }
}

/// Result of one step of a TLS session on a non-blocking socket.
public enum TLSOutcome: Sendable, Equatable {
    /// Number of bytes that were read or written. For a handshake, 0 means that it is complete.
    case moved(Int)
    /// The caller must call again when the socket is readable.
    case wantsRead
    /// The caller must call again when the socket is writable. A write must then pass the same bytes again, from the
    /// first one.
    case wantsWrite
    /// The peer will send no more bytes.
    case finished
    /// The session is broken and cannot be used again.
    case failed
}

/// One TLS session on a socket that the caller owns. Only one thread at a time may use it.
@safe
public final class TLSSession {
    private let ssl: OpaquePointer
    private var isBroken = false

    /// Takes ownership of a new session.
    fileprivate init(_ ssl: OpaquePointer) {
        // SAFETY: freed in `deinit`, by the only owner.
        unsafe self.ssl = ssl
    }

    deinit {
        // SAFETY: ours alone; the socket is not closed by it.
        unsafe SSL_free(ssl)
    }

    public func handshake() -> TLSOutcome {
        ERR_clear_error()
        // SAFETY: the session lives as long as this object; so in all calls below.
        let answer = unsafe SSL_do_handshake(ssl)
        return answer == 1 ? .moved(0) : outcome(of: answer)
    }

    /// Reason why the peer's certificate is not trusted; nil if it is trusted, or if the peer sent none.
    public var certificateTrouble: String? {
        // SAFETY: as in `handshake`; the text is a constant of the library.
        let code = unsafe SSL_get_verify_result(ssl)
        guard code != Int(X509_V_OK), let text = unsafe X509_verify_cert_error_string(code) else { return nil }
        return unsafe "its certificate is not trusted: \(String(cString: text))"
    }

    public func read(into buffer: UnsafeMutableRawBufferPointer) -> TLSOutcome {
        ERR_clear_error()
        // SAFETY: OpenSSL writes at most as many bytes as the buffer has.
        let count = unsafe SSL_read(ssl, buffer.baseAddress, Int32(clamping: buffer.count))
        return count > 0 ? .moved(Int(count)) : outcome(of: count)
    }

    /// Writes at most one record. After `wantsWrite` or `wantsRead`, the caller must offer
    /// the same bytes, or more, again.
    public func write(_ bytes: UnsafeRawBufferPointer) -> TLSOutcome {
        ERR_clear_error()
        // SAFETY: OpenSSL reads at most as many bytes as the buffer has, and keeps no pointer to them.
        let count = unsafe SSL_write(ssl, bytes.baseAddress, Int32(clamping: bytes.count))
        return count > 0 ? .moved(Int(count)) : outcome(of: count)
    }

    /// Largest number of bytes in one TLS record.
    public static let recordBytes = 16 << 10

    /// True if decrypted bytes can be read although epoll will not report the socket as readable.
    public var hasMore: Bool { unsafe SSL_pending(ssl) > 0 }  // SAFETY: as in `handshake`.

    /// Tells the peer that this side will send no more bytes, if the socket accepts the message immediately.
    public func finish() {
        guard !isBroken, unsafe SSL_is_init_finished(ssl) == 1 else { return }
        ERR_clear_error()
        // SAFETY: as in `handshake`; whether the peer hears of it is not our concern any more.
        _ = unsafe SSL_shutdown(ssl)
    }

    private func outcome(of answer: Int32) -> TLSOutcome {
        // SAFETY: as in `handshake`.
        switch unsafe SSL_get_error(ssl, answer) {
        case SSL_ERROR_WANT_READ: return .wantsRead
        case SSL_ERROR_WANT_WRITE: return .wantsWrite
        case SSL_ERROR_ZERO_RETURN: return .finished
        default:
            isBroken = true
            return .failed
        }
    }
}
