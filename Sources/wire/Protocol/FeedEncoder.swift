import Bytes

/// What a feed says beside changes: where it stands, what its client is to know, and why it ends. One JSON object each.
public struct FeedEncoder {
    let format: FeedForm.Format

    public init(_ format: FeedForm.Format) { self.format = format }

    /// What stands before the first record. Without a position nobody can go on until one is told.
    public func appendStart(at position: String?, to writer: inout ByteWriter) {
        switch format {
        case .page: writer.append("{\"events\":[")
        case .lines: appendPosition(position, to: &writer)
        case .events:
            writer.append("retry: \(Self.retryMilliseconds)")
            end(position, to: &writer)
        }
    }

    /// Sign of life of a feed that has nothing to tell: a client that goes on from here misses nothing.
    public func appendPosition(_ position: String?, to writer: inout ByteWriter) {
        switch format {
        case .page: preconditionFailure("a page says where it stands when it ends")
        case .lines:
            writer.append("{\"type\":\"position\"")
            writer.append(position: position)
            writer.append("}\n")
        // Without data it is no event; the client remembers the id all the same (HTML, "Server-sent events" 9.2.6).
        case .events:
            writer.append(": alive")
            end(position, to: &writer)
        }
    }

    public func appendSystem(_ record: SystemRecord, to writer: inout ByteWriter) {
        begin("system", to: &writer)
        record.append(to: &writer)
        end(record.position, to: &writer)
    }

    /// The last record.
    public func appendEnd(_ ending: FeedEnding, _ notes: [SystemRecord], to writer: inout ByteWriter) {
        switch format {
        case .page:
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

    /// After so long a browser comes back.
    static let retryMilliseconds = 2000
}

/// What the client of a feed is told in words.
public struct SystemRecord: Sendable, Hashable {
    public let status: ReplyStatus
    public let code: String
    public let text: String
    /// Nil where nobody can go on from there.
    public let position: String?
    /// Of a snapshot.
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

/// How a feed ends.
public struct FeedEnding: Sendable, Hashable {
    public struct Reason: Sendable, Hashable {
        public let code: String
        public let text: String

        public init(code: String, _ text: String) {
            self.code = code
            self.text = text
        }
    }

    /// From where to go on; nil where that is the beginning.
    public let position: String?
    /// There may be more in the log already.
    public let hasMore: Bool
    /// Nil where it came to its end as it was to.
    public let reason: Reason?

    public init(at position: String?, hasMore: Bool, because reason: Reason? = nil) {
        self.position = position
        self.hasMore = hasMore
        self.reason = reason
    }
}
