import Bytes

/// Success or failure of a request.
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

/// Source that a `system` message names in its field `extension`.
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

/// Writer of complete text messages to a client, in the version that its socket uses.
///
/// Topics are UTF-8; the encoder quotes them. Refs are JSON tokens, which the encoder writes unchanged; an empty ref
/// means null.
public struct MessageEncoder: Sendable {
    public let version: SerializerVersion

    public init(_ version: SerializerVersion) { self.version = version }

    // MARK: Replies

    /// Appends a reply. `response` must be a JSON object: Supabase's Python client fails on other values.
    public func appendReply(
        _ status: ReplyStatus, response: RawSpan, topic: RawSpan, joinRef: RawSpan, ref: RawSpan,
        to writer: inout ByteWriter
    ) {
        let isObject = !response.isEmpty && response.byte(0) == UInt8(ascii: "{")
        assert(isObject, "a response is an object")
        beginReply(status, topic: topic, joinRef: joinRef, ref: ref, to: &writer)
        writer.append(response)
        endReply(ref: ref, to: &writer)
    }

    /// Appends a reply that contains only its status.
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
        // The code is outside the response, because supabase-js shows all values of the response as the error's text.
        writer.append("},\"code\":\"")
        ClientText.appendCode(ofReason: reason, to: &writer)
        writer.append("\"")
        endReply(ref: ref, to: &writer)
    }

    public func appendErrorReply(
        reason: String, topic: RawSpan, joinRef: RawSpan, ref: RawSpan, to writer: inout ByteWriter
    ) {
        let bytes = Array(reason.utf8)
        appendErrorReply(reason: bytes.rawBytes, topic: topic, joinRef: joinRef, ref: ref, to: &writer)
    }

    /// Appends the reply to a message for a channel that is not joined, or for a topic that cannot be joined.
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

    /// Appends the reply to a join. It always has the key `postgres_changes`, which Supabase's Swift client takes as
    /// the sign of success. `standing` is for clients that asked for positions or to resume; nil for others.
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

    /// Appends a push. `payload` must be a JSON object: on other values Supabase's Swift client closes its whole
    /// connection.
    public func appendPush(
        _ event: RawSpan, payload: RawSpan, topic: RawSpan, joinRef: RawSpan, to writer: inout ByteWriter
    ) {
        begin(topic: topic, joinRef: joinRef, ref: RawSpan(), to: &writer)
        JSONText.appendString(event, to: &writer)
        beginPayload(to: &writer)
        writer.append(payload)
        end(ref: RawSpan(), to: &writer)
    }

    /// Appends a push for one of the protocol's own events.
    func appendPush(
        _ event: StaticString, payload: RawSpan, topic: RawSpan, joinRef: RawSpan, to writer: inout ByteWriter
    ) {
        let isObject = !payload.isEmpty && payload.byte(0) == UInt8(ascii: "{")
        assert(isObject, "the payload of a push of the hub is an object")
        begin(topic: topic, joinRef: joinRef, ref: RawSpan(), to: &writer)
        writer.append(UInt8(ascii: "\""))
        writer.append(event)
        writer.append(UInt8(ascii: "\""))
        beginPayload(to: &writer)
        writer.append(payload)
        end(ref: RawSpan(), to: &writer)
    }

    /// Appends the message that a channel has ended. `joinRef` is the ref of the join that ends, even if another join
    /// has replaced it.
    public func appendClose(topic: RawSpan, joinRef: RawSpan, to writer: inout ByteWriter) {
        begin(topic: topic, joinRef: joinRef, ref: joinRef, to: &writer)
        writer.append("\"phx_close\"")
        beginPayload(to: &writer)
        writer.append("{}")
        end(ref: joinRef, to: &writer)
    }

    /// Appends the message that a channel has failed. The client then joins again.
    public func appendChannelError(topic: RawSpan, joinRef: RawSpan, to writer: inout ByteWriter) {
        begin(topic: topic, joinRef: joinRef, ref: joinRef, to: &writer)
        writer.append("\"phx_error\"")
        beginPayload(to: &writer)
        writer.append("{\"reason\":\"channel_crash\"}")
        end(ref: joinRef, to: &writer)
    }

    /// Appends a `system` message. `channel` is the topic without its prefix. Supabase's Python client requires that
    /// `extension`, `status`, `message` and `channel` are strings.
    public func appendSystem(
        _ status: ReplyStatus, _ name: SystemExtension, message: RawSpan, code: TextCode?, position: String? = nil,
        rows: Int? = nil, sets: [ChangedSet] = [], channel: RawSpan, topic: RawSpan, joinRef: RawSpan,
        to writer: inout ByteWriter
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
        if !sets.isEmpty { ChangedSet.append(sets, to: &writer) }
        writer.append("}")
        end(ref: RawSpan(), to: &writer)
    }

    /// Appends the message that the hub is about to close the socket. It is the only `system` message without the
    /// member `channel`.
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

    /// Writes the message up to, but not including, the event's name.
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

    /// Writes the end of the message, after the payload. It contains the ref even if that is null, because Supabase's
    /// Python client requires it.
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
