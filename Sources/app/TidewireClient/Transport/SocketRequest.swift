#if os(Linux)
    import Foundation

    extension SocketTransport {
        /// Sends the request on its own connection, on a thread that ends with the connection.
        package func get(_ request: TransportRequest) async throws -> TransportAnswer {
            let mailbox = Mailbox<Result<TransportAnswer, Tidewire.Interruption>>()
            let certificates = trustedCertificates
            Thread.detachNewThread {
                do {
                    mailbox.put(.success(try SocketRequest(request).answer(certificates)))
                } catch let failure as SocketFailure {
                    mailbox.put(.failure(failure.why))
                } catch {
                    mailbox.put(.failure(.unreachable("\(error)")))
                }
            }
            guard let answer = await mailbox.take() else { throw CancellationError() }
            return try answer.get()
        }
    }

    extension URL {
        var requestTarget: String {
            let components = URLComponents(url: self, resolvingAgainstBaseURL: true)
            let path = components?.percentEncodedPath ?? ""
            return (path.isEmpty ? "/" : path) + (components?.percentEncodedQuery.map { "?" + $0 } ?? "")
        }

        var authority: String {
            let host = host() ?? ""
            return (host.contains(":") ? "[\(host)]" : host) + (port.map { ":\($0)" } ?? "")
        }
    }

    private struct SocketRequest {
        /// Time limit for an answer, in milliseconds. A server may search its log for ten seconds before it answers.
        private static let patience: Int32 = 30_000

        let request: TransportRequest

        init(_ request: TransportRequest) { self.request = request }

        func answer(_ certificates: String?) throws -> TransportAnswer {
            let stream = try SocketStream(request.url, certificates, Bell())
            var lines = [
                "GET \(request.url.requestTarget) HTTP/1.1", "Host: \(request.url.authority)", "Connection: close",
                "Accept: application/json",
            ]
            for (name, value) in request.headers.sorted(by: { $0.key < $1.key }) { lines.append("\(name): \(value)") }
            try stream.write(Array((lines.joined(separator: "\r\n") + "\r\n\r\n").utf8))
            var parser = AnswerParser()
            while true {
                if let answer = try parser.answer() { return answer }
                do {
                    parser.append(try stream.read(untilBell: false, patience: Self.patience))
                } catch {
                    // If the answer states no length, the end of the connection ends it.
                    guard let answer = parser.ended() else { throw error }
                    return answer
                }
            }
        }
    }
#endif
