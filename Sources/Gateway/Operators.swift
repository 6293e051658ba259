import WebSocket

/// Who answers what operators ask about projects.
public protocol Operators: Sendable {
    /// Why a request is refused before its body has come.
    func refusal(_ request: HTTPRequest, at now: Int64) -> HTTPResponse?

    /// The answer; nil where it takes its time, and comes later, from another thread.
    func answer(
        _ request: HTTPRequest, body: [UInt8], at now: Int64, later: @escaping @Sendable (HTTPResponse) -> Void
    ) -> HTTPResponse?
}
