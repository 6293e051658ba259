import Bytes

/// Kind of a request that a client sends.
public enum ClientEvent: Sendable, Hashable {
    case join
    case leave
    case heartbeat
    case accessToken
    case broadcast
    case presence
    /// Any other event. The hub counts it and never answers it on a joined channel.
    case other

    init(_ name: RawSpan) {
        self =
            if name.equals("heartbeat") {
                .heartbeat
            } else if name.equals("broadcast") {
                .broadcast
            } else if name.equals("presence") {
                .presence
            } else if name.equals("access_token") {
                .accessToken
            } else if name.equals("phx_join") {
                .join
            } else if name.equals("phx_leave") {
                .leave
            } else {
                .other
            }
    }
}

/// Format in which the payload arrived. The hub passes the payload on in a format that depends on it.
public enum PayloadForm: Sendable, Hashable {
    /// Valid JSON value.
    case json
    /// Opaque bytes of a binary push (frame kind 0).
    case opaque
    /// Payload of a user's broadcast in a binary frame (kind 3). The frame marks it as JSON; the hub has not checked
    /// that yet.
    case userJSON
    /// Opaque bytes of a user's broadcast in a binary frame (kind 3).
    case userBinary
}

/// Message of a client, read in place. It borrows from its frame and from the decoder, and is valid until the
/// decoder reads the next message.
public struct ClientMessage: ~Escapable {
    public let event: ClientEvent
    public let form: PayloadForm
    /// Topic in UTF-8, without escapes.
    public let topic: RawSpan
    public let eventName: RawSpan
    /// Event name chosen by the user, in a binary broadcast.
    public let userEvent: RawSpan
    /// Ref of the join as a JSON token with its quotes, so that the hub can repeat it byte for byte. Empty if null or
    /// absent.
    public let joinRef: RawSpan
    public let ref: RawSpan
    public let payload: RawSpan

    @_lifetime(copy text, copy payload)
    init(_ fields: MessageFields, text: RawSpan, payload: RawSpan) {
        assert(
            fields.userEvent.isEmpty || fields.form == .userJSON || fields.form == .userBinary,
            "only a user's broadcast in a binary frame has an event of its own")
        form = fields.form
        topic = text.extracting(fields.topic)
        eventName = text.extracting(fields.event)
        event = ClientEvent(text.extracting(fields.event))
        userEvent = text.extracting(fields.userEvent)
        joinRef = text.extracting(fields.joinRef)
        ref = text.extracting(fields.ref)
        self.payload = payload.extracting(fields.payload)
    }
}

/// Ranges of a message's parts: the payload's range is in the frame, all others are in the decoder's text.
struct MessageFields {
    var form = PayloadForm.json
    var topic = 0..<0
    var event = 0..<0
    var userEvent = 0..<0
    var joinRef = 0..<0
    var ref = 0..<0
    var payload = 0..<0
}

/// Part of a message that an error refers to.
public enum MessagePart: Sendable, Hashable {
    case joinRef, ref, topic, event, payload, metadata
}

/// Reason why a frame is not a message. The hub drops and counts the frame. The socket stays open, and the client gets
/// no reply.
public enum MessageError: Error, Sendable, Hashable {
    /// The text is not JSON, not UTF-8, has unpaired surrogates, or is nested too deep.
    case notJSON(offset: Int)
    /// The text is not an object, which version 1 requires.
    case notAnObject
    /// The text is not an array, which version 2 requires.
    case notAnArray
    case tooFewElements
    case missing(MessagePart)
    /// A topic or an event is not a string, or a ref is neither a string, a number nor null.
    case wrongType(MessagePart)
    case tooLong(MessagePart)
    /// A binary frame arrived on a socket that uses version 1.
    case binaryInVersion1
    case unknownKind(UInt8)
    /// A binary frame is shorter than the lengths in its head require.
    case truncated
    /// Text in a binary frame is not UTF-8.
    case notUTF8(MessagePart)
    case badMetadata
}
