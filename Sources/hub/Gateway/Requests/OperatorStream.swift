import Bytes
import Diagnostics
import Net
import Synchronization
import System
import WebSocket

/// HTTP client that waits for an answer. If it disconnects, the work for the answer can end.
///
/// A stream is an answer that is sent in parts as they arise: its head, bytes, and its end. The hub disconnects a
/// client that reads too slowly.
public final class WaitingClient: Sendable {
    /// Part of a streamed answer.
    public enum Part: Sendable {
        case head(HTTPResponse)
        case more([UInt8])
        case end
    }

    /// Maximum number of bytes of a stream that wait for the client's loop, and also of those that wait there for a
    /// slow client.
    static let mostBytes = 4 << 20

    private let left = Atomic<Bool>(false)
    private let bytes = Atomic<Int>(0)
    private let post: (@Sendable (Part) -> Void)?
    private let isOver: @Sendable () -> Bool

    /// Creates a client.
    ///
    /// - Parameters:
    ///   - isOver: returns true once the client may no longer get anything.
    ///   - post: passes a part of a stream to the client's loop; nil for a client that gets only whole answers.
    public init(
        until isOver: @escaping @Sendable () -> Bool = { false }, _ post: (@Sendable (Part) -> Void)? = nil
    ) {
        (self.post, self.isOver) = (post, isOver)
    }

    /// True if the client has disconnected, or may no longer get anything.
    public var hasLeft: Bool { left.load(ordering: .relaxed) || isOver() }
    public func leave() { left.store(true, ordering: .relaxed) }

    /// Sends a part. Returns false if the client has disconnected, or reads more slowly than the parts arise.
    public func send(_ part: Part) -> Bool {
        guard let post, !hasLeft else { return false }
        if case .more(let more) = part {
            let waiting = bytes.wrappingAdd(more.count, ordering: .relaxed).newValue
            guard waiting <= Self.mostBytes + more.count, waiting - more.count <= Self.mostBytes else {
                leave()
                return false
            }
        }
        post(part)
        return true
    }

    /// Records that the client's loop has handled this number of bytes.
    func hasTaken(_ count: Int) { bytes.wrappingSubtract(count, ordering: .relaxed) }
}

/// Streamed answers to operators' requests, on the loop that has the client's connection.
final class OperatorStreams: ClientPart {
    unowned let home: ClientLoop

    init(of home: ClientLoop) { self.home = home }

    /// Sends a part of an answer to the client. The first part must be the head.
    func send(_ part: WaitingClient.Part, to connection: ConnectionID) {
        guard let session = home.session(connection) else { return }
        switch (part, session.stage) {
        case (.head(let head), .answering):
            if let timer = session.timer { loop.cancel(timer) }
            session.timer = nil
            let isInChunks = session.request.incoming?.request.version == .http11
            var head = head
            if let incoming = session.request.incoming { head.headers += incoming.headers }
            session.stage = .streaming(inChunks: isInChunks)
            home.output.send(to: session) { writer in
                head.appendStreamHead(to: &writer, keepAlive: false, inChunks: isInChunks)
            }
        case (.more(let bytes), .streaming(let isInChunks)):
            session.request.waiting?.hasTaken(bytes.count)
            home.output.send(to: session) { writer in
                if isInChunks { writer.append("\(String(bytes.count, radix: 16))\r\n") }
                writer.append(bytes)
                if isInChunks { writer.append("\r\n") }
            }
            if session.isSlow, loop.queuedBytes(of: connection) > WaitingClient.mostBytes { cut(session) }
        case (.end, .streaming(let isInChunks)):
            if isInChunks { home.output.send(to: session) { writer in writer.append("0\r\n\r\n") } }
            session.stage = .ending
            loop.close(connection, afterFlushing: Limits.farewellLimit)
        default: session.request.waiting?.leave()
        }
    }

    /// Ends an answer without its last part, so that the client sees that it is incomplete.
    func cut(_ session: Session) {
        session.request.waiting?.leave()
        session.stage = .ending
        loop.close(session.connection, afterFlushing: .zero)
    }
}
