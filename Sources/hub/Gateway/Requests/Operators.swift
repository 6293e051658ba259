import WebSocket

/// Handler of operators' requests about projects.
public protocol Operators: Sendable {
    /// Returns the reason for refusing a request before its body is read; nil if the body is to be read.
    func refusal(_ request: HTTPRequest, at now: Int64) -> HTTPResponse?

    /// Returns the answer; nil if the answer takes longer, and is passed to `later` by another thread.
    func answer(
        _ request: HTTPRequest, body: [UInt8], for client: WaitingClient, at now: Int64,
        later: @escaping @Sendable (HTTPResponse) -> Void
    ) -> HTTPResponse?
}
