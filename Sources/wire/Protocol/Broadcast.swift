import Bytes

/// Origin and format of a broadcast. The hub chooses by it the frame that each kind of receiver gets.
public enum BroadcastForm: UInt8, Sendable, Hashable, BitwiseCopyable {
    /// The whole payload of a client's text message: an object that the hub passes on unchanged.
    case text
    /// An event name chosen by the user, and a JSON payload.
    case json
    /// An event name chosen by the user, and opaque bytes. Receivers that understand only text messages get nothing.
    case binary
    /// Message of a REST batch: an event name and a JSON payload, which every receiver gets as text.
    case batch
}

/// Reason why a client's push is not a valid broadcast. The hub drops and counts the push.
public enum BroadcastError: Error, Sendable, Hashable {
    /// The payload of the text message is not an object. If the hub passed it on, Supabase's Swift client would close
    /// its whole connection.
    case notAnObject
    /// The payload of the binary frame is marked as JSON but is not JSON, so the hub cannot write it into a text frame.
    case notJSON
    /// A binary push of the older kind 0, whose opaque bytes no receiver can read.
    case opaque
}

/// Message for all members of a topic. Borrows its bytes.
public struct Broadcast: ~Escapable {
    public let form: BroadcastForm
    /// Event name chosen by the user, in UTF-8. Empty for the form `text`.
    public let event: RawSpan
    /// Payload: valid JSON, or opaque bytes for the form `binary`.
    public let payload: RawSpan
    /// UUID as text, or empty. Receivers get it as `meta.id`.
    public let id: RawSpan
    /// True if the hub replays an old message to a channel that has just joined.
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

    /// Returns the broadcast that a client's push contains.
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

/// Kind of WebSocket frame in which a broadcast was written.
public enum BroadcastFrame: Sendable, Hashable {
    case text
    case binary
    /// No frame, because this receiver cannot read the message.
    case none
}

extension MessageEncoder {
    /// Writes the frame of a broadcast and returns its kind. All receivers of one topic and version get the same frame.
    /// Only the frame of a replayed message differs: it contains the receiver's `joinRef`. `topic` includes the prefix
    /// `realtime:`.
    public func appendBroadcast(
        _ broadcast: borrowing Broadcast, topic: RawSpan, joinRef: RawSpan = RawSpan(), to writer: inout ByteWriter
    ) -> BroadcastFrame {
        let frame = appendHead(of: broadcast, topic: topic, joinRef: joinRef, to: &writer)
        guard frame != .none else { return frame }
        writer.append(broadcast.payload)
        appendTail(of: broadcast, frame, to: &writer)
        return frame
    }

    /// Writes the part of the frame before the payload, for callers that write the payload themselves. Returns the kind
    /// of the frame. Writes nothing if the receiver cannot read the message.
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

    /// Writes the part of the frame after the payload. `frame` must be the kind that `appendHead` returned.
    public func appendTail(of broadcast: borrowing Broadcast, _ frame: BroadcastFrame, to writer: inout ByteWriter) {
        let form = broadcast.form
        assert(frame != .none, "a frame that was not begun has no end")
        assert(form != .binary || frame == .binary, "opaque bytes are never part of a text frame")
        guard frame == .text else { return }
        if broadcast.form == .text { return end(ref: RawSpan(), to: &writer) }
        if broadcast.form == .batch {
            // The reference server writes the members of a batch in this order.
            writer.append(",\"event\":")
            JSONText.appendString(broadcast.event, to: &writer)
        }
        endBroadcast(broadcast, to: &writer)
    }

    /// Writes the head of a binary frame of kind 4: `4 · topicLen · userEventLen · metadataLen · encoding · topic ·
    /// userEvent · metadata · payload`. Returns false, and writes nothing, if a length does not fit its single byte.
    private func appendUserHead(
        of broadcast: borrowing Broadcast, topic: RawSpan, to writer: inout ByteWriter
    ) -> Bool {
        guard let topicLength = UInt8(exactly: topic.byteCount),
            let eventLength = UInt8(exactly: broadcast.event.byteCount),
            let metadataLength = UInt8(exactly: Self.metadataBytes(broadcast))
        else { return false }
        let start = writer.count
        writer.append(UInt8(4))
        writer.append(topicLength)
        writer.append(eventLength)
        writer.append(metadataLength)
        writer.append(broadcast.form == .binary ? UInt8(0) : UInt8(1))
        writer.append(topic)
        writer.append(broadcast.event)
        if metadataLength > 0 { Self.appendMetadata(broadcast, to: &writer) }
        let headBytes = writer.count - start
        assert(
            headBytes == 5 + Int(topicLength) + Int(eventLength) + Int(metadataLength),
            "the head has the lengths that it states")
        return true
    }

    /// Begins the JSON object that a text frame contains in place of a binary frame of kind 4.
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

    /// Writes `{"replayed":true,"id":"…"}` with one, both or neither of the members. The id is a UUID, so it needs no
    /// escaping.
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
