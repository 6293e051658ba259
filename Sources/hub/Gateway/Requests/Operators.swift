import WebSocket

/// Handler of operators' requests about projects.
public protocol Operators: Sendable {
    /// Returns the refusal of a request before its body is read; nil if the hub may read the body.
    func refusal(_ request: HTTPRequest, at now: Int64) -> HTTPResponse?

    /// Returns the answer to a request. Nil if the answer takes longer: another thread then passes it to `later`.
    func answer(
        _ request: HTTPRequest, body: [UInt8], for client: WaitingClient, at now: Int64,
        later: @escaping @Sendable (HTTPResponse) -> Void
    ) -> HTTPResponse?
}
