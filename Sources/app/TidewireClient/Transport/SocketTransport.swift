#if os(Linux)
    import COpenSSL
    import Foundation
    import Glibc
    import Synchronization

    /// Transport over plain sockets, for systems whose URLSession has no WebSocket. Each connection has one thread,
    /// which waits for the socket and for messages to send.
    package struct SocketTransport: Transport {
        /// File of certificates to trust in addition to the system's.
        package var trustedCertificates: String?

        package init(trustedCertificates: String? = nil) { self.trustedCertificates = trustedCertificates }

        package func connect(
            to request: TransportRequest, hear: @escaping @Sendable (TransportEvent) -> Void
        ) -> any TransportConnection {
            let connection = SocketConnection(request, trustedCertificates, hear)
            Thread.detachNewThread { connection.run() }
            return connection
        }
    }

    private final class SocketConnection: TransportConnection {
        private struct Shared {
            var hear: (@Sendable (TransportEvent) -> Void)?
            var outgoing: [String] = []
            var outgoingBytes = 0
            var isClosing = false
        }

        /// Maximum number of bytes that wait to be sent. If more wait, the server is not reading: the client ends the
        /// connection and resumes on a new one.
        private static let maximumOutgoingBytes = 16 << 20

        private let request: TransportRequest
        private let trustedCertificates: String?
        private let shared: Mutex<Shared>
        private let bell: Bell

        init(
            _ request: TransportRequest, _ trustedCertificates: String?,
            _ hear: @escaping @Sendable (TransportEvent) -> Void
        ) {
            self.request = request
            self.trustedCertificates = trustedCertificates
            shared = Mutex(Shared(hear: hear))
            bell = Bell()
        }

        func send(_ text: String) {
            let isTooMuch = shared.withLock { shared in
                shared.outgoing.append(text)
                shared.outgoingBytes += text.utf8.count
                return shared.outgoingBytes > Self.maximumOutgoingBytes
            }
            if isTooMuch { end(.silent) }
            bell.ring()
        }

        func close() {
            shared.withLock { shared in
                shared.hear = nil
                shared.isClosing = true
            }
            bell.ring()
        }

        // MARK: On the connection's thread

        func run() {
            do {
                let stream = try SocketStream(request.url, trustedCertificates, bell)
                try converse(stream)
            } catch let failure as SocketFailure {
                end(failure.why)
            } catch {
                end(.unreachable("\(error)"))
            }
        }

        private func hear(_ event: TransportEvent) { shared.withLock { $0.hear }?(event) }

        private func end(_ why: Tidewire.Interruption) {
            let last = shared.withLock { shared in
                defer {
                    shared.hear = nil
                    shared.isClosing = true
                }
                return shared.hear
            }
            last?(.ended(why))
        }

        private func converse(_ stream: SocketStream) throws {
            var random = SystemRandomNumberGenerator()
            let handshake = Handshake(request)
            try stream.write(Array(handshake.text.utf8))
            var parser = FrameParser()
            parser.append(try handshake.answered(by: stream))
            hear(.opened)
            while true {
                while let event = try parser.next() {
                    switch event {
                    case .text(let text): hear(.text(text))
                    case .binary(let bytes): hear(.bytes(bytes))
                    case .ping(let bytes):
                        try stream.write(Frames.encode(.pong, bytes, mask: random.next(upperBound: .max)))
                    case .close(let code, let reason):
                        try? stream.write(Frames.close(code: 1000, mask: random.next(upperBound: .max)))
                        return end(.closed(code: code, reason: reason))
                    }
                }
                let (texts, isClosing) = shared.withLock { shared in
                    defer { (shared.outgoing, shared.outgoingBytes) = ([], 0) }
                    return (shared.outgoing, shared.isClosing)
                }
                for text in texts {
                    try stream.write(Frames.encode(.text, Array(text.utf8), mask: random.next(upperBound: .max)))
                }
                if isClosing {
                    try? stream.write(Frames.close(code: 1000, mask: random.next(upperBound: .max)))
                    return
                }
                parser.append(try stream.read())
            }
        }
    }

    struct SocketFailure: Error {
        let why: Tidewire.Interruption

        init(_ why: Tidewire.Interruption) { self.why = why }
        init(_ words: String) { why = .unreachable(words) }
    }

    /// Pipe by which other threads wake a thread that waits for a socket.
    final class Bell: Sendable {
        let reading: Int32
        private let writing: Int32

        init() {
            var ends: [Int32] = [-1, -1]
            precondition(pipe(&ends) == 0, "a connection needs two descriptors")
            for end in ends {
                _ = fcntl(end, F_SETFD, FD_CLOEXEC)
                _ = fcntl(end, F_SETFL, O_NONBLOCK)
            }
            (reading, writing) = (ends[0], ends[1])
        }

        deinit {
            close(reading)
            close(writing)
        }

        /// Wakes the thread that waits for the bell.
        func ring() {
            var byte: UInt8 = 1
            _ = write(writing, &byte, 1)
        }

        /// Removes the rings that have woken the thread.
        func quiet() {
            var bytes = [UInt8](repeating: 0, count: 64)
            while read(reading, &bytes, bytes.count) > 0 {}
        }
    }

    /// Opening handshake of a WebSocket connection (RFC 6455 §4.1).
    private struct Handshake {
        let text: String
        private let accept: String

        init(_ request: TransportRequest) {
            let key = Data((0..<16).map { _ in UInt8.random(in: .min ... .max) }).base64EncodedString()
            accept = Self.accept(key)
            let url = request.url
            var lines = [
                "GET \(url.requestTarget) HTTP/1.1", "Host: \(url.authority)", "Upgrade: websocket",
                "Connection: Upgrade", "Sec-WebSocket-Key: \(key)", "Sec-WebSocket-Version: 13",
            ]
            for (name, value) in request.headers.sorted(by: { $0.key < $1.key }) { lines.append("\(name): \(value)") }
            text = lines.joined(separator: "\r\n") + "\r\n\r\n"
        }

        private static func accept(_ key: String) -> String {
            let salted = Array((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").utf8)
            var digest = [UInt8](repeating: 0, count: 20)
            precondition(
                EVP_Digest(salted, salted.count, &digest, nil, EVP_sha1(), nil) == 1, "OpenSSL has SHA-1 for this")
            return Data(digest).base64EncodedString()
        }

        private static let maximumHeadBytes = 64 << 10

        /// Reads the server's answer to the handshake. Returns the received bytes that follow the answer.
        func answered(by stream: SocketStream) throws -> [UInt8] {
            var bytes: [UInt8] = []
            let end = Array("\r\n\r\n".utf8)
            while true {
                let more = try stream.read(untilBell: false)
                bytes += more
                if let head = bytes.firstRange(of: end) {
                    try check(
                        String(decoding: bytes[..<head.lowerBound], as: UTF8.self), body: bytes[head.upperBound...])
                    return Array(bytes[head.upperBound...])
                }
                guard bytes.count < Self.maximumHeadBytes else { throw SocketFailure("an answer that does not end") }
            }
        }

        private func check(_ head: String, body: ArraySlice<UInt8>) throws {
            let lines = head.split(separator: "\r\n")
            let status = lines.first?.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0
            guard status == 101 else {
                let words = (try? JSONValue(parsing: Array(body)))?["error"]?.text
                throw SocketFailure(.refused(status: status, reason: words ?? ""))
            }
            let isAccepted = lines.contains { line in
                let parts = line.split(separator: ":", maxSplits: 1)
                return parts.count == 2 && parts[0].lowercased() == "sec-websocket-accept"
                    && parts[1].trimmingCharacters(in: .whitespaces) == accept
            }
            guard isAccepted else { throw SocketFailure("whoever answers speaks no WebSocket") }
        }
    }
#endif
