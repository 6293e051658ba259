#if canImport(Darwin)
    import Foundation
    import Synchronization

    /// Transport that uses the WebSocket of Apple's URLSession.
    package struct URLSessionTransport: Transport {
        package init() {}

        package func connect(
            to request: TransportRequest, hear: @escaping @Sendable (TransportEvent) -> Void
        ) -> any TransportConnection {
            URLSessionConnection(request, hear)
        }

        package func get(_ request: TransportRequest) async throws -> TransportAnswer {
            var urlRequest = URLRequest(url: request.url)
            for (name, value) in request.headers { urlRequest.setValue(value, forHTTPHeaderField: name) }
            let (data, response): (Data, URLResponse)
            do {
                (data, response) = try await URLSession.shared.data(for: urlRequest)
            } catch let error as URLError where error.code == .cancelled {
                throw CancellationError()
            } catch {
                throw Tidewire.Interruption.unreachable(error.localizedDescription)
            }
            return TransportAnswer(status: (response as? HTTPURLResponse)?.statusCode ?? 0, body: Array(data))
        }
    }

    private final class URLSessionConnection: NSObject, TransportConnection, URLSessionWebSocketDelegate {
        // Nil after the last event was reported.
        private let listener: Mutex<(@Sendable (TransportEvent) -> Void)?>
        private let task = Mutex<URLSessionWebSocketTask?>(nil)

        init(_ request: TransportRequest, _ hear: @escaping @Sendable (TransportEvent) -> Void) {
            listener = Mutex(hear)
            super.init()
            var urlRequest = URLRequest(url: request.url)
            for (name, value) in request.headers { urlRequest.setValue(value, forHTTPHeaderField: name) }
            let session = URLSession(configuration: .default, delegate: self, delegateQueue: nil)
            let task = session.webSocketTask(with: urlRequest)
            task.maximumMessageSize = FrameParser.maximumMessageBytes
            self.task.withLock { $0 = task }
            task.resume()
            session.finishTasksAndInvalidate()
        }

        private func hear(_ event: TransportEvent) { listener.withLock { $0 }?(event) }

        private func end(_ why: Tidewire.Interruption) {
            let last = listener.withLock { listener in
                defer { listener = nil }
                return listener
            }
            last?(.ended(why))
        }

        func send(_ text: String) {
            task.withLock { $0 }?.send(.string(text)) { [weak self] error in
                if let error { self?.end(.unreachable(error.localizedDescription)) }
            }
        }

        func close() {
            listener.withLock { $0 = nil }
            task.withLock { $0 }?.cancel(with: .normalClosure, reason: nil)
        }

        private func receive(_ task: URLSessionWebSocketTask) {
            task.receive { [weak self] result in
                switch result {
                case .success(.string(let text)): self?.hear(.text(text))
                case .success(.data(let data)): self?.hear(.bytes(Array(data)))
                case .success: break
                case .failure: return
                }
                self?.receive(task)
            }
        }

        func urlSession(
            _ session: URLSession, webSocketTask: URLSessionWebSocketTask, didOpenWithProtocol protocol: String?
        ) {
            hear(.opened)
            receive(webSocketTask)
        }

        func urlSession(
            _ session: URLSession, webSocketTask: URLSessionWebSocketTask,
            didCloseWith closeCode: URLSessionWebSocketTask.CloseCode, reason: Data?
        ) {
            let words = reason.map { String(decoding: $0, as: UTF8.self) } ?? ""
            end(.closed(code: closeCode.rawValue, reason: words))
        }

        func urlSession(_ session: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?) {
            if let response = task.response as? HTTPURLResponse, response.statusCode >= 300 {
                end(.refused(status: response.statusCode, reason: ""))
            } else {
                end(.unreachable(error?.localizedDescription ?? "the connection ended"))
            }
        }
    }
#endif
