import Bytes
import Change

/// Text around a change's body in a message or a feed's record. All receivers share the body. Channels with the same
/// topic and the same matching bindings share the envelope.
public struct ChangeEnvelope: Sendable, Hashable {
    private enum Kind: Hashable {
        case message(SerializerVersion)
        /// Message for a channel that joined in the older form: the event names the operation, and the payload is the
        /// body itself.
        case legacy(SerializerVersion)
        case record(FeedForm)
    }

    /// Text of the message or record before the body.
    public private(set) var prefix: [UInt8]
    private let kind: Kind
    /// Further members of the object around the body, as text that is written after the body.
    public private(set) var more: [UInt8] = []

    /// Makes the envelope of a message. `ids` are the ids of the channel's bindings that the change matches.
    public init(_ version: SerializerVersion, topic: RawSpan, ids: [UInt32]) {
        var writer = ByteWriter(capacity: 96 + topic.byteCount)
        Self.appendPrefix(version, topic: topic, ids: ids, to: &writer)
        prefix = writer.copied()
        kind = .message(version)
    }

    /// Makes the envelope for a channel that joined in the older form: the event names the operation, and the payload
    /// is the body itself.
    public init(_ version: SerializerVersion, topic: RawSpan, legacy operation: Operation) {
        var writer = ByteWriter(capacity: 96 + topic.byteCount)
        Self.appendPrefix(version, topic: topic, legacy: operation, to: &writer)
        prefix = writer.copied()
        kind = .legacy(version)
    }

    /// Makes the envelope of records in a feed, the answer to `GET /api/changes`.
    public init(_ form: FeedForm) {
        let text: StaticString =
            switch form.format {
            case .page, .lines: "{\"type\":\"change\",\"data\":"
            case .events: "event: change\ndata: {\"type\":\"change\",\"data\":"
            }
        prefix = Array("\(text)".utf8)
        kind = .record(form)
    }

    /// Format of the feed to whose records the envelope belongs; nil for the envelope of a message.
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

    /// Returns this envelope with two log positions: after this change, and after the channel's previous change. For
    /// channels that asked for positions. A message of the older form has no place for them, so its envelope stays
    /// unchanged.
    public func standing(at position: String, behind previous: String) -> ChangeEnvelope {
        assert(more.isEmpty, "an envelope gets its positions once")
        var envelope = self
        switch kind {
        case .message: envelope.more = Array(",\"position\":\"\(position)\",\"previous\":\"\(previous)\"".utf8)
        case .legacy: break
        case .record: preconditionFailure("a record says where it stands as the so-manieth of its feed")
        }
        return envelope
    }

    /// Returns the envelope of a snapshot row in a feed. It has no position, because no client can resume after such a
    /// row.
    public func record() -> ChangeEnvelope {
        guard case .record(let form) = kind, form.format != .page else { preconditionFailure("rows go into streams") }
        assert(more.isEmpty, "an envelope becomes that of a snapshot row once")
        var envelope = self
        envelope.more = Array((form.format == .events ? "}\n" : "}").utf8)
        return envelope
    }

    /// Returns the envelope of a change in a feed, with the position after that change. With `isFirst` the record is
    /// the first of its page.
    public func record(at position: String, isFirst: Bool) -> ChangeEnvelope {
        guard case .record(let form) = kind else { preconditionFailure("a socket has no records") }
        assert(more.isEmpty, "an envelope of a feed gets its position once")
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

    /// Returns the length in bytes of a message whose body has `body` bytes.
    public func byteCount(around body: Int) -> Int { prefix.count + body + more.count + suffix.utf8CodeUnitCount }

    /// Appends the text of the message or record after the body.
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
