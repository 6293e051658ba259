import Bytes
import Diagnostics
import Net
import Protocol
import WebSocket

/// Bytes for single clients, written in buffers that the loop keeps.
final class ClientOutput: ClientPart {
    unowned let home: ClientLoop
    private var writer = ByteWriter(capacity: 4096)
    private var frame = ByteWriter(capacity: 4096)

    init(of home: ClientLoop) { self.home = home }

    /// Queues the bytes for the session's socket.
    func send(_ bytes: RawSpan, to session: Session) { loop.send(bytes, to: session.connection) }

    /// Queues what the closure writes, as it is.
    func send(to session: Session, _ write: (inout ByteWriter) -> Void) {
        writer.removeAll()
        write(&writer)
        send(writer.bytes, to: session)
        writer.shrink(to: Limits.keptWriterBytes)
    }

    /// Queues what the first closure writes, in the frame that the second puts around it.
    func send(to session: Session, _ write: (inout ByteWriter) -> Void, in wrap: (RawSpan, inout ByteWriter) -> Void) {
        writer.removeAll()
        write(&writer)
        frame.removeAll()
        wrap(writer.bytes, &frame)
        send(frame.bytes, to: session)
        writer.shrink(to: Limits.keptWriterBytes)
        frame.shrink(to: Limits.keptWriterBytes)
    }

    /// Queues one text message of the client protocol. Sends nothing after a close frame.
    func sendMessage(to session: Session, _ write: (MessageEncoder, inout ByteWriter) -> Void) {
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
