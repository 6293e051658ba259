#if os(Linux)
    import COpenSSL
    import Foundation
    import Glibc

    /// TCP connection, with TLS for `wss`. One thread reads from it and writes to it.
    final class SocketStream {
        private static let connectPatience: Int32 = 10_000
        private static let writePatience: Int32 = 30_000

        private let descriptor: Int32
        private let bell: Bell
        private var tls: TLSSession?

        init(_ url: URL, _ trustedCertificates: String?, _ bell: Bell) throws {
            guard let host = url.host() else { throw SocketFailure("an address without a host") }
            let isSecure = url.scheme == "wss" || url.scheme == "https"
            self.bell = bell
            descriptor = try Self.connect(host, url.port ?? (isSecure ? 443 : 80))
            guard isSecure else { return }
            let session = try TLSSession(descriptor, host: host, trustedCertificates: trustedCertificates)
            tls = session
            while true {
                switch try session.handshake() {
                case .done: return
                case .waits(let events):
                    guard wait(for: events, Self.connectPatience) else { throw SocketFailure(.silent) }
                }
            }
        }

        deinit { close(descriptor) }

        private static func connect(_ host: String, _ port: Int) throws -> Int32 {
            var hints = addrinfo()
            hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
            var found: UnsafeMutablePointer<addrinfo>?
            let code = getaddrinfo(host, String(port), &hints, &found)
            guard code == 0 else { throw SocketFailure("\(host): \(String(cString: gai_strerror(code)))") }
            defer { freeaddrinfo(found) }
            var words = "no address"
            var next = found
            while let address = next?.pointee {
                next = address.ai_next
                let descriptor = socket(
                    address.ai_family, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | O_NONBLOCK, 0)
                guard descriptor >= 0 else { continue }
                var one: Int32 = 1
                setsockopt(descriptor, Int32(IPPROTO_TCP), TCP_NODELAY, &one, socklen_t(MemoryLayout<Int32>.size))
                let answer = Glibc.connect(descriptor, address.ai_addr, address.ai_addrlen)
                if let refusal = refusal(of: answer, descriptor) {
                    words = refusal
                    close(descriptor)
                } else {
                    return descriptor
                }
            }
            throw SocketFailure("\(host):\(port): \(words)")
        }

        /// Waits until a connection attempt ends. Returns the reason if it failed; nil if it succeeded.
        private static func refusal(of answer: Int32, _ descriptor: Int32) -> String? {
            if answer == 0 { return nil }
            guard errno == EINPROGRESS else { return String(cString: strerror(errno)) }
            var waiting = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
            guard poll(&waiting, 1, connectPatience) > 0 else { return "no answer" }
            var code: Int32 = 0
            var length = socklen_t(MemoryLayout<Int32>.size)
            getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &code, &length)
            return code == 0 ? nil : String(cString: strerror(code))
        }

        private func wait(for events: Int32, _ milliseconds: Int32) -> Bool {
            var waiting = pollfd(fd: descriptor, events: Int16(events), revents: 0)
            return poll(&waiting, 1, milliseconds) > 0
        }

        func write(_ bytes: [UInt8]) throws {
            var rest = bytes[...]
            while !rest.isEmpty {
                let count = rest.withUnsafeBytes { buffer in
                    tls?.write(buffer) ?? send(descriptor, buffer.baseAddress, buffer.count, Int32(MSG_NOSIGNAL))
                }
                if count > 0 {
                    rest.removeFirst(count)
                } else if tls != nil ? count == 0 : (errno == EAGAIN || errno == EINTR) {
                    guard wait(for: tls?.waitsFor ?? POLLOUT, Self.writePatience) else { throw SocketFailure(.silent) }
                } else {
                    throw SocketFailure("the connection was lost")
                }
            }
        }

        /// Reads the bytes that have arrived, waiting for some if necessary. With `untilBell` returns no bytes if the
        /// bell rings first.
        func read(untilBell: Bool = true, patience: Int32 = connectPatience) throws -> [UInt8] {
            while true {
                var buffer = [UInt8](repeating: 0, count: 64 << 10)
                let count = buffer.withUnsafeMutableBytes { buffer in
                    tls?.read(buffer) ?? recv(descriptor, buffer.baseAddress, buffer.count, 0)
                }
                if count > 0 { return Array(buffer[..<count]) }
                let mayWait = tls.map { $0.waitsFor != nil } ?? (count < 0 && (errno == EAGAIN || errno == EINTR))
                guard mayWait else { throw SocketFailure("the connection was lost") }
                let events = tls?.waitsFor ?? POLLIN
                guard untilBell else {
                    guard wait(for: events, patience) else { throw SocketFailure(.silent) }
                    continue
                }
                var waiting = [
                    pollfd(fd: descriptor, events: Int16(events), revents: 0),
                    pollfd(fd: bell.reading, events: Int16(POLLIN), revents: 0),
                ]
                poll(&waiting, 2, -1)
                if waiting[1].revents != 0 {
                    bell.quiet()
                    return []
                }
            }
        }
    }

    /// TLS session, implemented by OpenSSL. It verifies the server's name.
    final class TLSSession {
        enum Progress {
            case done
            case waits(Int32)
        }

        private let context: OpaquePointer
        private let session: OpaquePointer
        /// Event of `poll` for which the session waits; nil if the session cannot continue.
        private(set) var waitsFor: Int32?

        init(_ descriptor: Int32, host: String, trustedCertificates: String?) throws {
            guard let context = tw_client_context(trustedCertificates), let session = SSL_new(context) else {
                throw SocketFailure("the certificates to be trusted cannot be read")
            }
            self.context = context
            self.session = session
            guard tw_set_socket(session, descriptor) == 1, tw_expect_host(session, host) == 1 else {
                throw SocketFailure("TLS cannot begin")
            }
        }

        deinit {
            SSL_free(session)
            SSL_CTX_free(context)
        }

        func handshake() throws -> Progress {
            ERR_clear_error()
            let answer = SSL_connect(session)
            if answer == 1 { return .done }
            guard let events = events(of: answer) else {
                let verified = SSL_get_verify_result(session)
                guard verified == X509_V_OK else {
                    throw SocketFailure(
                        "its certificate: \(String(cString: X509_verify_cert_error_string(Int(verified))))")
                }
                throw SocketFailure("TLS failed")
            }
            return .waits(events)
        }

        private func events(of answer: Int32) -> Int32? {
            switch SSL_get_error(session, answer) {
            case SSL_ERROR_WANT_READ: POLLIN
            case SSL_ERROR_WANT_WRITE: POLLOUT
            default: nil
            }
        }

        /// Writes bytes and returns their number. Returns 0 if the caller must wait for the event `waitsFor` first, and
        /// a negative number if the session has ended.
        func write(_ bytes: UnsafeRawBufferPointer) -> Int {
            ERR_clear_error()
            var written = 0
            let answer = SSL_write_ex(session, bytes.baseAddress, bytes.count, &written)
            waitsFor = answer == 1 ? POLLOUT : events(of: answer)
            return answer == 1 ? written : waitsFor == nil ? -1 : 0
        }

        func read(_ bytes: UnsafeMutableRawBufferPointer) -> Int {
            ERR_clear_error()
            var count = 0
            let answer = SSL_read_ex(session, bytes.baseAddress, bytes.count, &count)
            waitsFor = answer == 1 ? POLLIN : events(of: answer)
            return answer == 1 ? count : 0
        }
    }
#endif
