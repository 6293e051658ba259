import Bytes
import Change

/// What stands around a change's body in a message. The body is shared by all receivers; the envelope by those who joined
/// the same topic with the same bindings.
public struct ChangeEnvelope: Sendable, Hashable {
    /// Everything before the body.
    public let prefix: [UInt8]
    private let version: SerializerVersion
    private let isLegacy: Bool
    /// What is said beside `ids` and `data`, as members of their object.
    public private(set) var more: [UInt8] = []

    /// `ids` are the bindings of the channel that the change matches.
    public init(_ version: SerializerVersion, topic: RawSpan, ids: [UInt32]) {
        var writer = ByteWriter(capacity: 96 + topic.byteCount)
        Self.appendPrefix(version, topic: topic, ids: ids, to: &writer)
        prefix = writer.copied()
        self.version = version
        isLegacy = false
    }

    /// For a channel that was joined in the old form: the event names the operation, and the payload is the body itself.
    public init(_ version: SerializerVersion, topic: RawSpan, legacy operation: Operation) {
        var writer = ByteWriter(capacity: 96 + topic.byteCount)
        Self.appendPrefix(version, topic: topic, legacy: operation, to: &writer)
        prefix = writer.copied()
        self.version = version
        isLegacy = true
    }

    public var suffix: StaticString { Self.suffix(version, isLegacy: isLegacy) }

    /// The same for a channel that asked where it stands: behind this change, and behind the one that was told to it before.
    /// The old form has no place for it.
    public func standing(at position: String, behind previous: String) -> ChangeEnvelope {
        if isLegacy { return self }
        var envelope = self
        envelope.more = Array(",\"position\":\"\(position)\",\"previous\":\"\(previous)\"".utf8)
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
