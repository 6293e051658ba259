import COpenSSL
import Glibc
import System
import TestSupport

/// TLS client on a blocking socket. It uses only OpenSSL, so that the hub's code is not tested by itself.
final class TLSClient {
    let socket: TestClient
    private let context: OpaquePointer
    private let ssl: OpaquePointer

    /// Connects. `maximumVersion` limits the version of TLS.
    init(_ socket: TestClient, maximumVersion: Int32? = nil) throws {
        self.socket = socket
        guard let context = SSL_CTX_new(TLS_client_method()) else { throw ClientFailure(operation: "context", code: 0) }
        self.context = context
        if let maximumVersion {
            SSL_CTX_ctrl(context, SSL_CTRL_SET_MAX_PROTO_VERSION, Int(maximumVersion), nil)
        }
        guard let ssl = SSL_new(context) else { throw ClientFailure(operation: "session", code: 0) }
        self.ssl = ssl
        guard tw_set_socket(ssl, socket.descriptor) == 1, SSL_connect(ssl) == 1 else {
            throw ClientFailure(operation: "handshake", code: 0)
        }
    }

    deinit {
        SSL_free(ssl)
        SSL_CTX_free(context)
    }

    var version: String { String(cString: SSL_get_version(ssl)) }

    /// Subject of the server's certificate as text.
    var subject: String {
        guard let certificate = SSL_get1_peer_certificate(ssl) else { return "" }
        defer { X509_free(certificate) }
        guard let text = X509_NAME_oneline(X509_get_subject_name(certificate), nil, 0) else { return "" }
        defer { CRYPTO_free(text, #file, #line) }
        return String(cString: text)
    }

    func send(_ bytes: [UInt8]) throws {
        guard SSL_write(ssl, bytes, Int32(bytes.count)) == bytes.count else {
            throw ClientFailure(operation: "send", code: errno)
        }
    }

    func receive(_ wanted: Int) throws -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: wanted)
        var filled = 0
        while filled < wanted {
            let count = bytes.withUnsafeMutableBytes { all in
                SSL_read(
                    ssl, UnsafeMutableRawBufferPointer(rebasing: all[filled...]).baseAddress, Int32(wanted - filled))
            }
            guard count > 0 else { throw ClientFailure(operation: "receive", code: errno) }
            filled += Int(count)
        }
        return bytes
    }

    /// Returns the data up to the server's end of the TLS session; nil if the server does not end the session.
    func receiveAll() -> [UInt8]? {
        var all: [UInt8] = []
        var part = [UInt8](repeating: 0, count: 16 << 10)
        while true {
            let count = SSL_read(ssl, &part, Int32(part.count))
            if count > 0 {
                all += part[..<Int(count)]
            } else {
                return SSL_get_error(ssl, count) == SSL_ERROR_ZERO_RETURN ? all : nil
            }
        }
    }

    func finish() { SSL_shutdown(ssl) }
}

/// Files of a new self-signed certificate, made by OpenSSL's own command.
struct Certificate {
    let directory: String
    var certificate: String { directory + "/certificate.pem" }
    var key: String { directory + "/key.pem" }

    init() throws {
        var template = Array("/tmp/tidewire-tls-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw ClientFailure(operation: "mkdtemp", code: errno) }
        directory = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    func make(name: String) throws {
        let child = try ChildProcess(
            [
                "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
                "2", "-subj", "/CN=" + name, "-keyout", key, "-out", certificate,
            ], output: "/dev/null")
        guard child.wait() == .exited(0) else { throw ClientFailure(operation: "openssl req", code: 0) }
    }

    func spoil() throws {
        guard truncate(certificate, 20) == 0 else { throw ClientFailure(operation: "truncate", code: errno) }
    }

    func remove() {
        for file in [certificate, key] { unlink(file) }
        rmdir(directory)
    }
}
