import Bytes

/// Whether what was asked for was done.
public enum ReplyStatus: Sendable, Hashable {
    case ok
    case error

    var name: StaticString {
        switch self {
        case .ok: "ok"
        case .error: "error"
        }
    }
}

/// Who speaks in a `system` message.
public enum SystemExtension: Sendable, Hashable {
    case system
    case postgresChanges

    var name: StaticString {
        switch self {
        case .system: "system"
        case .postgresChanges: "postgres_changes"
        }
    }
}

/// Writes whole text messages to a client, in the form its socket speaks.
///
/// Topics are UTF-8 and are quoted here; refs are JSON tokens, empty for null, and go out as they came.
public struct MessageEncoder: Sendable {
    public let version: SerializerVersion

    public init(_ version: SerializerVersion) { self.version = version }

    // MARK: Replies

    /// `response` is JSON; what is not an object makes Python's client stumble.
    public func appendReply(
        _ status: ReplyStatus, response: RawSpan, topic: RawSpan, joinRef: RawSpan, ref: RawSpan,
        to writer: inout ByteWriter
    ) {
        beginReply(status, topic: topic, joinRef: joinRef, ref: ref, to: &writer)
        writer.append(response)
        endReply(ref: ref, to: &writer)
    }

    /// A reply that says no more than its status.
    public func appendReply(
        _ status: ReplyStatus, topic: RawSpan, joinRef: RawSpan, ref: RawSpan, to writer: inout ByteWriter
    ) {
        beginReply(status, topic: topic, joinRef: joinRef, ref: ref, to: &writer)
        writer.append("{}")
        endReply(ref: ref, to: &writer)
    }

    public func appendErrorReply(
        reason: RawSpan, topic: RawSpan, joinRef: RawSpan, ref: RawSpan, to writer: inout ByteWriter
    ) {
        beginReply(.error, topic: topic, joinRef: joinRef, ref: ref, to: &writer)
        writer.append("{\"reason\":")
        JSONText.appendString(reason, to: &writer)
        // Beside the response: supabase-js shows all values in that as the error's text.
        writer.append("},\"code\":\"")
        ClientText.appendCode(ofReason: reason, to: &writer)
        writer.append("\"")
        endReply(ref: ref, to: &writer)
    }

    public func appendErrorReply(
        reason: String, topic: RawSpan, joinRef: RawSpan, ref: RawSpan, to writer: inout ByteWriter
    ) {
        let bytes = Array(reason.utf8)
        // SAFETY: any byte is a valid UInt8, and the array outlives the call.
        appendErrorReply(reason: unsafe bytes.span.bytes, topic: topic, joinRef: joinRef, ref: ref, to: &writer)
    }

    /// A channel that nobody has joined, or a topic that cannot be joined.
    public func appendUnmatchedTopic(_ topic: RawSpan, ref: RawSpan, to writer: inout ByteWriter) {
        appendErrorReply(reason: "unmatched topic", topic: topic, joinRef: RawSpan(), ref: ref, to: &writer)
    }

    public func appendHeartbeatReply(ref: RawSpan, to writer: inout ByteWriter) {
        writer.append(version == .v1 ? "{\"topic\":\"phoenix\",\"event\":\"phx_reply\",\"payload\":" : "[null,")
        if version == .v2 {
            appendRef(ref, to: &writer)
            writer.append(",\"phoenix\",\"phx_reply\",")
        }
        writer.append("{\"status\":\"ok\",\"response\":{}}")
        end(ref: ref, to: &writer)
    }

    /// The key `postgres_changes` is always there: it is what Swift's client takes for success. What is said of the log is
    /// for those who asked.
    public func appendJoinReply(
        _ bindings: [ChangeBinding], _ standing: LogStanding? = nil, topic: RawSpan, joinRef: RawSpan, ref: RawSpan,
        to writer: inout ByteWriter
    ) {
        beginReply(.ok, topic: topic, joinRef: joinRef, ref: ref, to: &writer)
        writer.append("{\"postgres_changes\":[")
        for (index, binding) in bindings.enumerated() {
            if index > 0 { writer.append(UInt8(ascii: ",")) }
            binding.appendReply(to: &writer)
        }
        writer.append("]")
        standing?.append(to: &writer)
        writer.append("}")
        endReply(ref: ref, to: &writer)
    }

    // MARK: Pushes

    /// `payload` is a JSON object: with anything else Swift's client gives up the whole connection.
    public func appendPush(
        _ event: RawSpan, payload: RawSpan, topic: RawSpan, joinRef: RawSpan, to writer: inout ByteWriter
    ) {
        begin(topic: topic, joinRef: joinRef, ref: RawSpan(), to: &writer)
        JSONText.appendString(event, to: &writer)
        beginPayload(to: &writer)
        writer.append(payload)
        end(ref: RawSpan(), to: &writer)
    }

    /// The same for an event of the protocol's own.
    func appendPush(
        _ event: StaticString, payload: RawSpan, topic: RawSpan, joinRef: RawSpan, to writer: inout ByteWriter
    ) {
        begin(topic: topic, joinRef: joinRef, ref: RawSpan(), to: &writer)
        writer.append(UInt8(ascii: "\""))
        writer.append(event)
        writer.append(UInt8(ascii: "\""))
        beginPayload(to: &writer)
        writer.append(payload)
        end(ref: RawSpan(), to: &writer)
    }

    /// The channel has ended. `joinRef` is that of the join that ends, also when another one took its place.
    public func appendClose(topic: RawSpan, joinRef: RawSpan, to writer: inout ByteWriter) {
        begin(topic: topic, joinRef: joinRef, ref: joinRef, to: &writer)
        writer.append("\"phx_close\"")
        beginPayload(to: &writer)
        writer.append("{}")
        end(ref: joinRef, to: &writer)
    }

    /// The channel has failed; clients join it again.
    public func appendChannelError(topic: RawSpan, joinRef: RawSpan, to writer: inout ByteWriter) {
        begin(topic: topic, joinRef: joinRef, ref: joinRef, to: &writer)
        writer.append("\"phx_error\"")
        beginPayload(to: &writer)
        writer.append("{\"reason\":\"channel_crash\"}")
        end(ref: joinRef, to: &writer)
    }

    /// `channel` is the topic without its prefix; all four members are strings, which Python's client demands.
    public func appendSystem(
        _ status: ReplyStatus, _ name: SystemExtension, message: RawSpan, code: TextCode?, position: String? = nil,
        rows: Int? = nil, channel: RawSpan, topic: RawSpan, joinRef: RawSpan, to writer: inout ByteWriter
    ) {
        begin(topic: topic, joinRef: joinRef, ref: RawSpan(), to: &writer)
        writer.append("\"system\"")
        beginPayload(to: &writer)
        appendSystemHead(status, name, to: &writer)
        JSONText.appendString(message, to: &writer)
        writer.append(",\"channel\":")
        JSONText.appendString(channel, to: &writer)
        if let code {
            writer.append(",\"code\":\"")
            writer.append(code.rawValue)
            writer.append("\"")
        }
        if let position {
            writer.append(",\"position\":\"")
            writer.append(position)
            writer.append("\"")
        }
        if let rows {
            writer.append(",\"rows\":")
            writer.append(decimal: UInt64(rows))
        }
        writer.append("}")
        end(ref: RawSpan(), to: &writer)
    }

    /// The one message without a channel: the socket is about to be closed.
    public func appendDisconnectRequest(topic: RawSpan, joinRef: RawSpan, to writer: inout ByteWriter) {
        begin(topic: topic, joinRef: joinRef, ref: RawSpan(), to: &writer)
        writer.append("\"system\"")
        beginPayload(to: &writer)
        appendSystemHead(.ok, .system, to: &writer)
        writer.append("\"Server requested disconnect\"}")
        end(ref: RawSpan(), to: &writer)
    }

    private func appendSystemHead(_ status: ReplyStatus, _ name: SystemExtension, to writer: inout ByteWriter) {
        writer.append("{\"extension\":\"")
        writer.append(name.name)
        writer.append("\",\"status\":\"")
        writer.append(status.name)
        writer.append("\",\"message\":")
    }

    // MARK: The frame around a payload

    private func beginReply(
        _ status: ReplyStatus, topic: RawSpan, joinRef: RawSpan, ref: RawSpan, to writer: inout ByteWriter
    ) {
        begin(topic: topic, joinRef: joinRef, ref: ref, to: &writer)
        writer.append("\"phx_reply\"")
        beginPayload(to: &writer)
        writer.append("{\"status\":\"")
        writer.append(status.name)
        writer.append("\",\"response\":")
    }

    private func endReply(ref: RawSpan, to writer: inout ByteWriter) {
        writer.append(UInt8(ascii: "}"))
        end(ref: ref, to: &writer)
    }

    /// Up to where the event's name stands.
    func begin(topic: RawSpan, joinRef: RawSpan, ref: RawSpan, to writer: inout ByteWriter) {
        switch version {
        case .v1:
            writer.append("{\"topic\":")
            JSONText.appendString(topic, to: &writer)
            writer.append(",\"event\":")
        case .v2:
            writer.append(UInt8(ascii: "["))
            appendRef(joinRef, to: &writer)
            writer.append(UInt8(ascii: ","))
            appendRef(ref, to: &writer)
            writer.append(UInt8(ascii: ","))
            JSONText.appendString(topic, to: &writer)
            writer.append(UInt8(ascii: ","))
        }
    }

    func beginPayload(to writer: inout ByteWriter) {
        switch version {
        case .v1: writer.append(",\"payload\":")
        case .v2: writer.append(UInt8(ascii: ","))
        }
    }

    /// From behind the payload to the end. A ref is there even when it is null, which Python's client demands.
    func end(ref: RawSpan, to writer: inout ByteWriter) {
        switch version {
        case .v1:
            writer.append(",\"ref\":")
            appendRef(ref, to: &writer)
            writer.append(UInt8(ascii: "}"))
        case .v2: writer.append(UInt8(ascii: "]"))
        }
    }

    private func appendRef(_ ref: RawSpan, to writer: inout ByteWriter) {
        if ref.isEmpty { writer.append("null") } else { writer.append(ref) }
    }
}
