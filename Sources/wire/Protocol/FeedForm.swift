import Bytes

/// How changes are written into the answer to a request.
public struct FeedForm: Sendable, Hashable {
    /// The records are the same in all of them: what stands around each is not.
    public enum Format: Sendable, Hashable {
        /// One JSON object for a page of changes: `{"events":[…],"system":[…],"position":"…","more":false}`.
        case page
        /// A record a line (`application/x-ndjson`).
        case lines
        /// Server-sent events (`text/event-stream`).
        case events
    }

    /// How a client that speaks HTTP knows where the answer ends.
    public enum Framing: Sendable, Hashable {
        /// HTTP/1.1 (RFC 9112 §7.1).
        case chunks
        /// Before that: with the connection.
        case untilClose
    }

    public let format: Format
    public let framing: Framing

    public init(_ format: Format, _ framing: Framing) {
        self.format = format
        self.framing = framing
    }

    /// What is appended, as a piece of the answer: in chunks, one of them.
    public func appendPiece(_ bytes: RawSpan, to writer: inout ByteWriter) {
        assert(bytes.byteCount > 0, "a chunk of nothing ends the answer")
        appendPieceHead(bytes.byteCount, to: &writer)
        writer.append(bytes)
        appendPieceEnd(to: &writer)
    }

    /// Its client tells records apart by line breaks. JSON has them between values only, where a blank means the same, and
    /// PostgreSQL keeps those of a `json` value.
    public static func appendOneLine(_ body: RawSpan, to writer: inout ByteWriter) {
        var at = 0
        for index in 0..<body.byteCount where body.byte(index) == 0x0a || body.byte(index) == 0x0d {
            writer.append(body.extracting(at..<index))
            writer.append(UInt8(ascii: " "))
            at = index + 1
        }
        writer.append(body.extracting(at..<body.byteCount))
    }

    public func appendPieceHead(_ byteCount: Int, to writer: inout ByteWriter) {
        guard framing == .chunks else { return }
        writer.append(String(byteCount, radix: 16))
        writer.append("\r\n")
    }

    public func appendPieceEnd(to writer: inout ByteWriter) {
        if framing == .chunks { writer.append("\r\n") }
    }

    /// Behind the last piece.
    public func appendEnd(to writer: inout ByteWriter) {
        if framing == .chunks { writer.append("0\r\n\r\n") }
    }
}

/// In what a channel gets its changes.
public enum EnvelopeForm: Sendable, Hashable {
    /// Messages on a socket.
    case messages(SerializerVersion)
    /// Records in the answer to a request.
    case records(FeedForm)
}
