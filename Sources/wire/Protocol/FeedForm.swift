import Bytes

/// Format of a feed, the answer to `GET /api/changes`.
public struct FeedForm: Sendable, Hashable {
    /// Format of the text around the records. The records are the same in all formats.
    public enum Format: Sendable, Hashable {
        /// One JSON object with a page of changes: `{"events":[…],"system":[…],"position":"…","more":false}`.
        case page
        /// Record per line (`application/x-ndjson`).
        case lines
        /// Server-sent events (`text/event-stream`).
        case events
    }

    /// Method by which an HTTP client recognizes the end of the answer.
    public enum Framing: Sendable, Hashable {
        /// Chunked encoding of HTTP/1.1 (RFC 9112 §7.1).
        case chunks
        /// The hub closes the connection. For clients older than HTTP/1.1.
        case untilClose
    }

    public let format: Format
    public let framing: Framing

    public init(_ format: Format, _ framing: Framing) {
        self.format = format
        self.framing = framing
    }

    /// Appends a part of the answer. With chunked encoding the part becomes one chunk.
    public func appendPiece(_ bytes: RawSpan, to writer: inout ByteWriter) {
        assert(bytes.byteCount > 0, "a chunk of nothing ends the answer")
        appendPieceHead(bytes.byteCount, to: &writer)
        writer.append(bytes)
        appendPieceEnd(to: &writer)
    }

    /// Appends a body with its line breaks replaced by blanks, because clients separate records by line breaks. In JSON
    /// a line break occurs only between values, where a blank means the same. PostgreSQL keeps the line breaks of a
    /// `json` value.
    public static func appendOneLine(_ body: RawSpan, to writer: inout ByteWriter) {
        let start = writer.count
        var at = 0
        for index in 0..<body.byteCount where body.byte(index) == 0x0a || body.byte(index) == 0x0d {
            writer.append(body.extracting(at..<index))
            writer.append(UInt8(ascii: " "))
            at = index + 1
        }
        writer.append(body.extracting(at..<body.byteCount))
        let (written, expected) = (writer.count - start, body.byteCount)
        assert(written == expected, "a body on one line has the length of the body")
    }

    public func appendPieceHead(_ byteCount: Int, to writer: inout ByteWriter) {
        guard framing == .chunks else { return }
        assert(byteCount > 0, "a chunk without bytes would end the answer")
        writer.append(String(byteCount, radix: 16))
        writer.append("\r\n")
    }

    public func appendPieceEnd(to writer: inout ByteWriter) {
        if framing == .chunks { writer.append("\r\n") }
    }

    /// Appends the text that ends the answer, after its last part.
    public func appendEnd(to writer: inout ByteWriter) {
        if framing == .chunks { writer.append("0\r\n\r\n") }
    }
}

/// Form in which the hub sends a channel's changes.
public enum EnvelopeForm: Sendable, Hashable {
    /// Messages on a WebSocket.
    case messages(SerializerVersion)
    /// Records in the answer to `GET /api/changes`.
    case records(FeedForm)
}
