import Bytes
import Diagnostics
import Net
import Protocol
import WebSocket

/// Output to single clients, written in buffers that the loop reuses.
final class ClientOutput: ClientPart {
    unowned let home: ClientLoop
    private var writer = ByteWriter(capacity: 4096)
    private var frame = ByteWriter(capacity: 4096)

    init(of home: ClientLoop) { self.home = home }

    /// Queues the bytes for the session's socket.
    func send(_ bytes: RawSpan, to session: Session) { loop.send(bytes, to: session.connection) }

    /// Queues the bytes that the closure writes, without a frame.
    func send(to session: Session, _ write: (inout ByteWriter) -> Void) {
        writer.removeAll()
        write(&writer)
        send(writer.bytes, to: session)
        writer.shrink(to: Limits.keptWriterBytes)
    }

    /// Queues the bytes that the first closure writes, inside the frame that the second closure adds.
    func send(to session: Session, _ write: (inout ByteWriter) -> Void, in wrap: (RawSpan, inout ByteWriter) -> Void) {
        writer.removeAll()
        write(&writer)
        frame.removeAll()
        wrap(writer.bytes, &frame)
        send(frame.bytes, to: session)
        writer.shrink(to: Limits.keptWriterBytes)
        frame.shrink(to: Limits.keptWriterBytes)
    }

    /// Queues the text message that the closure writes. Does nothing if the session has no open WebSocket of a client.
    func sendMessage(to session: Session, _ write: (MessageEncoder, inout ByteWriter) -> Void) {
        // No frame may follow a close frame.
        guard case .client = session.stage else { return }
        send(to: session) { writer in
            write(MessageEncoder(session.terms.version), &writer)
            let isWritten = !writer.isEmpty
            assert(isWritten, "a message has bytes")
        } in: { message, frame in
            FrameEncoder.append(.text, message, to: &frame)
        }
    }
}
