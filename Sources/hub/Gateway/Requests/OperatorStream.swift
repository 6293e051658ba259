import Bytes
import Diagnostics
import Net
import Synchronization
import System
import WebSocket

/// Client that waits for an answer. When the client leaves, the work is no longer needed.
///
/// An answer that goes on is sent in parts: its head, bytes, and its end. A client that reads too slowly is cut off.
public final class WaitingClient: Sendable {
    /// Part of an answer that goes on.
    public enum Part: Sendable {
        case head(HTTPResponse)
        case more([UInt8])
        case end
    }

    /// Bytes that may be on their way to the client's loop.
    static let mostBytes = 4 << 20

    private let left = Atomic<Bool>(false)
    private let bytes = Atomic<Int>(0)
    private let post: (@Sendable (Part) -> Void)?

    /// - Parameter post: passes a part to the client's loop; nil for a client that takes whole answers only.
    public init(_ post: (@Sendable (Part) -> Void)? = nil) { self.post = post }

    public var hasLeft: Bool { left.load(ordering: .relaxed) }
    public func leave() { left.store(true, ordering: .relaxed) }

    /// Sends a part. False if the client has left, or does not read as fast as parts come.
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

    func hasTaken(_ count: Int) { bytes.wrappingSubtract(count, ordering: .relaxed) }
}

/// Answers to operators' requests that the hub sends in parts, as they arise.
final class OperatorStreams: ClientPart {
    unowned let home: ClientLoop

    init(of home: ClientLoop) { self.home = home }

    /// Sends a part of an answer. The first part is its head.
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

    /// Ends an answer without its last part, so that the client sees that it was cut.
    func cut(_ session: Session) {
        session.request.waiting?.leave()
        session.stage = .ending
        loop.close(session.connection, afterFlushing: .zero)
    }
}
