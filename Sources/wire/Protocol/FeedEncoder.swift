import Bytes

/// Encoder of a feed's records other than changes: positions, messages for the client, and the end. A feed is the
/// answer to `GET /api/changes`. Each record is one JSON object.
public struct FeedEncoder {
    let format: FeedForm.Format

    public init(_ format: FeedForm.Format) { self.format = format }

    /// Writes the feed's text before the first record. If `position` is nil, the client can resume only after a later
    /// record with a position.
    public func appendStart(at position: String?, to writer: inout ByteWriter) {
        switch format {
        case .page: writer.append("{\"events\":[")
        case .lines: appendPosition(position, to: &writer)
        case .events:
            writer.append("retry: \(Self.retryMilliseconds)")
            end(position, to: &writer)
        }
    }

    /// Writes a keep-alive record with a position. A client that resumes from this position misses nothing.
    public func appendPosition(_ position: String?, to writer: inout ByteWriter) {
        switch format {
        case .page: preconditionFailure("a page says where it stands when it ends")
        case .lines:
            writer.append("{\"type\":\"position\"")
            writer.append(position: position)
            writer.append("}\n")
        // Without data this is not an event, but the client still remembers the id (HTML, "Server-sent events" 9.2.6).
        case .events:
            writer.append(": alive")
            end(position, to: &writer)
        }
    }

    public func appendSystem(_ record: SystemRecord, to writer: inout ByteWriter) {
        assert(format != .page, "a page has its messages at its end")
        begin("system", to: &writer)
        record.append(to: &writer)
        end(record.position, to: &writer)
    }

    /// Writes the feed's last record. `notes` are the messages that a page contains.
    public func appendEnd(_ ending: FeedEnding, _ notes: [SystemRecord], to writer: inout ByteWriter) {
        switch format {
        case .page:
            assert(ending.reason == nil || !notes.isEmpty, "a page that ends early has a message that says why")
            writer.append("],\"system\":[")
            for (index, note) in notes.enumerated() {
                if index > 0 { writer.append(",") }
                note.append(to: &writer)
            }
            writer.append("]")
            writer.append(position: ending.position)
            writer.append(",\"more\":\(ending.hasMore)}\n")
        case .lines, .events:
            begin("end", to: &writer)
            writer.append("{\"type\":\"end\"")
            if let reason = ending.reason {
                writer.append(",\"code\":\"\(reason.code)\",\"message\":")
                JSONText.appendString(reason.text, to: &writer)
            }
            writer.append(position: ending.position)
            writer.append(",\"more\":\(ending.hasMore)}")
            end(ending.position, to: &writer)
        }
    }

    private func begin(_ event: StaticString, to writer: inout ByteWriter) {
        guard format == .events else { return }
        writer.append("event: ")
        writer.append(event)
        writer.append("\ndata: ")
    }

    private func end(_ position: String?, to writer: inout ByteWriter) {
        guard format == .events else { return writer.append("\n") }
        if let position { writer.append("\nid: \(position)") }
        writer.append("\n\n")
    }

    /// Milliseconds after which a browser reconnects.
    static let retryMilliseconds = 2000
}

/// Message for the client of a feed.
public struct SystemRecord: Sendable, Hashable {
    public let status: ReplyStatus
    public let code: String
    public let text: String
    /// Position from which the client can resume; nil if it cannot resume after this message.
    public let position: String?
    /// Number of rows that a snapshot contained; nil in other messages.
    public var rows: Int?

    public init(_ status: ReplyStatus, code: String, _ text: String, at position: String?) {
        self.status = status
        self.code = code
        self.text = text
        self.position = position
    }

    func append(to writer: inout ByteWriter) {
        writer.append("{\"type\":\"system\",\"status\":\"")
        writer.append(status.name)
        writer.append("\",\"code\":\"\(code)\",\"message\":")
        JSONText.appendString(text, to: &writer)
        if let rows { writer.append(",\"rows\":\(rows)") }
        writer.append(position: position)
        writer.append("}")
    }
}

extension ByteWriter {
    fileprivate mutating func append(position: String?) {
        append(position.map { ",\"position\":\"\($0)\"" } ?? ",\"position\":null")
    }
}

/// End of a feed.
public struct FeedEnding: Sendable, Hashable {
    public struct Reason: Sendable, Hashable {
        public let code: String
        public let text: String

        public init(code: String, _ text: String) {
            self.code = code
            self.text = text
        }
    }

    /// Position from which the client can resume; nil means the beginning of the log.
    public let position: String?
    /// True if the log may already contain more changes than the feed has sent.
    public let hasMore: Bool
    /// Reason why the feed ended early; nil if it ended as requested.
    public let reason: Reason?

    public init(at position: String?, hasMore: Bool, because reason: Reason? = nil) {
        self.position = position
        self.hasMore = hasMore
        self.reason = reason
    }
}
