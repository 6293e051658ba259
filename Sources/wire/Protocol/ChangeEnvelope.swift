import Bytes
import Change

/// What stands around a change's body in a message or a record. The body is shared by all receivers; the envelope by those who
/// joined the same topic with the same bindings.
public struct ChangeEnvelope: Sendable, Hashable {
    private enum Kind: Hashable {
        case message(SerializerVersion)
        /// Of a channel that was joined in the old form: the event names the operation, and the payload is the body itself.
        case legacy(SerializerVersion)
        case record(FeedForm)
    }

    /// Everything before the body.
    public private(set) var prefix: [UInt8]
    private let kind: Kind
    /// What is said behind the body, as members of its object.
    public private(set) var more: [UInt8] = []

    /// `ids` are the bindings of the channel that the change matches.
    public init(_ version: SerializerVersion, topic: RawSpan, ids: [UInt32]) {
        var writer = ByteWriter(capacity: 96 + topic.byteCount)
        Self.appendPrefix(version, topic: topic, ids: ids, to: &writer)
        prefix = writer.copied()
        kind = .message(version)
    }

    /// For a channel that was joined in the old form: the event names the operation, and the payload is the body itself.
    public init(_ version: SerializerVersion, topic: RawSpan, legacy operation: Operation) {
        var writer = ByteWriter(capacity: 96 + topic.byteCount)
        Self.appendPrefix(version, topic: topic, legacy: operation, to: &writer)
        prefix = writer.copied()
        kind = .legacy(version)
    }

    /// For a feed.
    public init(_ form: FeedForm) {
        let text: StaticString =
            switch form.format {
            case .page, .lines: "{\"type\":\"change\",\"data\":"
            case .events: "event: change\ndata: {\"type\":\"change\",\"data\":"
            }
        prefix = Array("\(text)".utf8)
        kind = .record(form)
    }

    /// Nil of what goes out as a message of a socket.
    public var feed: FeedForm? { if case .record(let form) = kind { form } else { nil } }

    public var suffix: StaticString {
        switch kind {
        case .message(let version): Self.suffix(version)
        case .legacy(let version): Self.suffix(version, isLegacy: true)
        case .record(let form):
            switch form.format {
            case .page: ""
            case .lines, .events: "\n"
            }
        }
    }

    /// The same for a channel that asked where it stands: behind this change, and behind the one that was told to it before.
    /// The old form has no place for it.
    public func standing(at position: String, behind previous: String) -> ChangeEnvelope {
        var envelope = self
        switch kind {
        case .message: envelope.more = Array(",\"position\":\"\(position)\",\"previous\":\"\(previous)\"".utf8)
        case .legacy: break
        case .record: preconditionFailure("a record says where it stands as the so-manieth of its feed")
        }
        return envelope
    }

    /// A stream's record of a row that was there before its changes: nobody can go on from behind it.
    public func record() -> ChangeEnvelope {
        guard case .record(let form) = kind, form.format != .page else { preconditionFailure("rows go into streams") }
        var envelope = self
        envelope.more = Array((form.format == .events ? "}\n" : "}").utf8)
        return envelope
    }

    /// A feed's record of the change, behind which it stands there.
    public func record(at position: String, isFirst: Bool) -> ChangeEnvelope {
        guard case .record(let form) = kind else { preconditionFailure("a socket has no records") }
        var envelope = self
        switch form.format {
        case .page:
            envelope.prefix.insert(contentsOf: (isFirst ? "\n" : ",\n").utf8, at: 0)
            envelope.more = Array(",\"position\":\"\(position)\"}".utf8)
        case .lines: envelope.more = Array(",\"position\":\"\(position)\"}".utf8)
        case .events: envelope.more = Array(",\"position\":\"\(position)\"}\nid: \(position)\n".utf8)
        }
        return envelope
    }

    /// How long the message is around a body of so many bytes.
    public func byteCount(around body: Int) -> Int { prefix.count + body + more.count + suffix.utf8CodeUnitCount }

    /// Everything behind the body.
    public func appendEnd(to writer: inout ByteWriter) {
        writer.append(more)
        writer.append(suffix)
    }

    public static func suffix(_ version: SerializerVersion, isLegacy: Bool = false) -> StaticString {
        switch (version, isLegacy) {
        case (.v1, false): "},\"ref\":null}"
        case (.v1, true): ",\"ref\":null}"
        case (.v2, false): "}]"
        case (.v2, true): "]"
        }
    }

    public static func appendPrefix(
        _ version: SerializerVersion, topic: RawSpan, ids: [UInt32], to writer: inout ByteWriter
    ) {
        let encoder = MessageEncoder(version)
        encoder.begin(topic: topic, joinRef: RawSpan(), ref: RawSpan(), to: &writer)
        writer.append("\"postgres_changes\"")
        encoder.beginPayload(to: &writer)
        writer.append("{\"ids\":[")
        for (index, id) in ids.enumerated() {
            if index > 0 { writer.append(UInt8(ascii: ",")) }
            writer.append(decimal: UInt64(id))
        }
        writer.append("],\"data\":")
    }

    public static func appendPrefix(
        _ version: SerializerVersion, topic: RawSpan, legacy operation: Operation, to writer: inout ByteWriter
    ) {
        let encoder = MessageEncoder(version)
        encoder.begin(topic: topic, joinRef: RawSpan(), ref: RawSpan(), to: &writer)
        JSONText.appendString(operation.name, to: &writer)
        encoder.beginPayload(to: &writer)
    }
}
