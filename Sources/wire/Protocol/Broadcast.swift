import Bytes

/// What a broadcast consists of, which decides how it is written for each receiver.
public enum BroadcastForm: UInt8, Sendable, Hashable, BitwiseCopyable {
    /// The whole payload of a client's text message, an object that receivers get verbatim.
    case text
    /// The user's event and JSON.
    case json
    /// The user's event and opaque bytes: nothing for receivers that know text only.
    case binary
    /// One of a REST batch: event and JSON that every receiver gets as text.
    case batch
}

/// Why a client's push is no broadcast. It is dropped and counted.
public enum BroadcastError: Error, Sendable, Hashable {
    /// A text payload that is not an object: Swift's client gives up the whole connection when it gets one.
    case notAnObject
    /// A binary frame whose payload is said to be JSON and is not: it could not be told to receivers of text.
    case notJSON
    /// A binary push of the old kind, which no receiver reads.
    case opaque
}

/// Something said to a topic, borrowed.
public struct Broadcast: ~Escapable {
    public let form: BroadcastForm
    /// The user's own event name, UTF-8; empty with `text`.
    public let event: RawSpan
    /// Checked JSON, or the opaque bytes.
    public let payload: RawSpan
    /// A UUID as text, or empty. Receivers get it as `meta.id`.
    public let id: RawSpan
    /// It comes from the past, to one who has just joined.
    public let isReplayed: Bool

    @_lifetime(copy event, copy payload, copy id)
    public init(
        _ form: BroadcastForm, event: RawSpan, payload: RawSpan, id: RawSpan = RawSpan(), isReplayed: Bool = false
    ) {
        self.form = form
        self.event = event
        self.payload = payload
        self.id = id
        self.isReplayed = isReplayed
    }

    @_lifetime(copy message)
    private init(_ form: BroadcastForm, _ message: borrowing ClientMessage) {
        self.form = form
        event = message.userEvent
        payload = message.payload
        id = RawSpan()
        isReplayed = false
    }

    /// What a client's push says to its topic.
    @_lifetime(copy message)
    public static func said(by message: borrowing ClientMessage) throws(BroadcastError) -> Broadcast {
        Broadcast(try form(of: message), message)
    }

    private static func form(of message: borrowing ClientMessage) throws(BroadcastError) -> BroadcastForm {
        switch message.form {
        case .json:
            let isObject = !message.payload.isEmpty && message.payload.byte(0) == UInt8(ascii: "{")
            guard isObject else { throw .notAnObject }
            return .text
        case .userJSON:
            guard JSONScanner.isValue(message.payload) else { throw .notJSON }
            return .json
        case .userBinary: return .binary
        case .opaque: throw .opaque
        }
    }
}

/// What kind of frame was written.
public enum BroadcastFrame: Sendable, Hashable {
    case text
    case binary
    /// Nothing: this receiver could not understand it.
    case none
}

extension MessageEncoder {
    /// All receivers of one topic and version get the same frame, unless it is replayed: then it has their `joinRef`.
    /// `topic` has its prefix.
    public func appendBroadcast(
        _ broadcast: borrowing Broadcast, topic: RawSpan, joinRef: RawSpan = RawSpan(), to writer: inout ByteWriter
    ) -> BroadcastFrame {
        let frame = appendHead(of: broadcast, topic: topic, joinRef: joinRef, to: &writer)
        guard frame != .none else { return frame }
        writer.append(broadcast.payload)
        appendTail(of: broadcast, frame, to: &writer)
        return frame
    }

    /// What stands before the payload, for whoever has the payload somewhere else; nothing where there is no message.
    public func appendHead(
        of broadcast: borrowing Broadcast, topic: RawSpan, joinRef: RawSpan = RawSpan(), to writer: inout ByteWriter
    ) -> BroadcastFrame {
        switch broadcast.form {
        case .text:
            beginBroadcast(topic: topic, joinRef: joinRef, to: &writer)
            return .text
        case .batch:
            beginBroadcast(topic: topic, joinRef: joinRef, to: &writer)
            writer.append("{\"payload\":")
            return .text
        case .json:
            if version == .v2, !broadcast.isReplayed, appendUserHead(of: broadcast, topic: topic, to: &writer) {
                return .binary
            }
            beginNamed(broadcast, topic: topic, joinRef: joinRef, to: &writer)
            return .text
        case .binary:
            return version == .v2 && appendUserHead(of: broadcast, topic: topic, to: &writer) ? .binary : .none
        }
    }

    /// What stands behind the payload in a frame of the kind that the head is of.
    public func appendTail(of broadcast: borrowing Broadcast, _ frame: BroadcastFrame, to writer: inout ByteWriter) {
        guard frame == .text else { return }
        if broadcast.form == .text { return end(ref: RawSpan(), to: &writer) }
        if broadcast.form == .batch {
            // In the order of the reference's batches.
            writer.append(",\"event\":")
            JSONText.appendString(broadcast.event, to: &writer)
        }
        endBroadcast(broadcast, to: &writer)
    }

    /// Kind 4: `4 · topicLen · userEventLen · metadataLen · encoding · topic · userEvent · metadata · payload`. Whether
    /// everything fits the single bytes of its lengths; else nothing is written.
    private func appendUserHead(
        of broadcast: borrowing Broadcast, topic: RawSpan, to writer: inout ByteWriter
    ) -> Bool {
        guard let topicLength = UInt8(exactly: topic.byteCount),
            let eventLength = UInt8(exactly: broadcast.event.byteCount),
            let metadataLength = UInt8(exactly: Self.metadataBytes(broadcast))
        else { return false }
        writer.append(UInt8(4))
        writer.append(topicLength)
        writer.append(eventLength)
        writer.append(metadataLength)
        writer.append(broadcast.form == .binary ? UInt8(0) : UInt8(1))
        writer.append(topic)
        writer.append(broadcast.event)
        if metadataLength > 0 { Self.appendMetadata(broadcast, to: &writer) }
        return true
    }

    /// The object that stands for kind 4 where text is spoken.
    private func beginNamed(
        _ broadcast: borrowing Broadcast, topic: RawSpan, joinRef: RawSpan, to writer: inout ByteWriter
    ) {
        beginBroadcast(topic: topic, joinRef: joinRef, to: &writer)
        writer.append("{\"event\":")
        JSONText.appendString(broadcast.event, to: &writer)
        writer.append(",\"payload\":")
    }

    private func beginBroadcast(topic: RawSpan, joinRef: RawSpan, to writer: inout ByteWriter) {
        begin(topic: topic, joinRef: joinRef, ref: RawSpan(), to: &writer)
        writer.append("\"broadcast\"")
        beginPayload(to: &writer)
    }

    private func endBroadcast(_ broadcast: borrowing Broadcast, to writer: inout ByteWriter) {
        writer.append(",\"type\":\"broadcast\"")
        if Self.metadataBytes(broadcast) > 0 {
            writer.append(",\"meta\":")
            Self.appendMetadata(broadcast, to: &writer)
        }
        writer.append(UInt8(ascii: "}"))
        end(ref: RawSpan(), to: &writer)
    }

    /// `{"replayed":true,"id":"…"}`, either or none of both. An id is a UUID, so it needs no escapes.
    private static func appendMetadata(_ broadcast: borrowing Broadcast, to writer: inout ByteWriter) {
        writer.append(broadcast.isReplayed ? "{\"replayed\":true" : "{")
        if !broadcast.id.isEmpty {
            writer.append(broadcast.isReplayed ? ",\"id\":\"" : "\"id\":\"")
            writer.append(broadcast.id)
            writer.append(UInt8(ascii: "\""))
        }
        writer.append(UInt8(ascii: "}"))
    }

    private static func metadataBytes(_ broadcast: borrowing Broadcast) -> Int {
        switch (broadcast.isReplayed, broadcast.id.isEmpty) {
        case (false, true): 0
        case (true, true): 17
        case (false, false): 9 + broadcast.id.byteCount
        case (true, false): 25 + broadcast.id.byteCount
        }
    }
}
