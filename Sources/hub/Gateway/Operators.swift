import Synchronization
import WebSocket

/// Who answers what operators ask about projects.
public protocol Operators: Sendable {
    /// Why a request is refused before its body has come.
    func refusal(_ request: HTTPRequest, at now: Int64) -> HTTPResponse?

    /// The answer; nil where it takes its time, and comes later, from another thread.
    func answer(
        _ request: HTTPRequest, body: [UInt8], for client: WaitingClient, at now: Int64,
        later: @escaping @Sendable (HTTPResponse) -> Void
    ) -> HTTPResponse?
}

/// Client that waits for an answer. When it leaves, the work is no longer needed.
public final class WaitingClient: Sendable {
    private let left = Atomic<Bool>(false)

    public init() {}

    public var hasLeft: Bool { left.load(ordering: .relaxed) }
    func leave() { left.store(true, ordering: .relaxed) }
}
