import Settings
import WebSocket

/// Handler of operators' requests about projects.
public protocol Operators: Sendable {
    /// Returns the refusal of a request before its body is read; nil if the hub may read the body.
    ///
    /// - Parameter known: the operator, for a request of the web console; nil if the request's token states the operator.
    func refusal(_ request: HTTPRequest, of known: Operator?, at now: Int64) -> HTTPResponse?

    /// Returns the answer to a request. Nil if the answer takes longer: another thread then passes it to `later`.
    func answer(
        _ request: HTTPRequest, of known: Operator?, body: [UInt8], for client: WaitingClient, at now: Int64,
        later: @escaping @Sendable (HTTPResponse) -> Void
    ) -> HTTPResponse?
}
