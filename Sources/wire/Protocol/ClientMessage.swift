import Bytes

/// What a client asks for.
public enum ClientEvent: Sendable, Hashable {
    case join
    case leave
    case heartbeat
    case accessToken
    case broadcast
    case presence
    /// Anything else: counted, never answered on a joined channel.
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

/// How the payload came, which decides how it goes on.
public enum PayloadForm: Sendable, Hashable {
    /// One JSON value, checked.
    case json
    /// Opaque bytes of a binary push (kind 0).
    case opaque
    /// A user's broadcast in a binary frame (kind 3), whose payload is said to be JSON. It has not been checked.
    case userJSON
    /// A user's broadcast in a binary frame (kind 3) with opaque bytes.
    case userBinary
}

/// One message of a client, read in place: borrowed from its frame and from the decoder, until the next one.
public struct ClientMessage: ~Escapable {
    public let event: ClientEvent
    public let form: PayloadForm
    /// UTF-8 without escapes.
    public let topic: RawSpan
    public let eventName: RawSpan
    /// The user's own event name of a binary broadcast.
    public let userEvent: RawSpan
    /// JSON tokens, quotes included, so that they are echoed byte for byte; empty when null or absent.
    public let joinRef: RawSpan
    public let ref: RawSpan
    public let payload: RawSpan

    @_lifetime(copy text, copy payload)
    init(_ fields: MessageFields, text: RawSpan, payload: RawSpan) {
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

/// Where a message's parts lie: the payload in the frame, everything else in the decoder's text.
struct MessageFields {
    var form = PayloadForm.json
    var topic = 0..<0
    var event = 0..<0
    var userEvent = 0..<0
    var joinRef = 0..<0
    var ref = 0..<0
    var payload = 0..<0
}

/// A part of a message, for errors.
public enum MessagePart: Sendable, Hashable {
    case joinRef, ref, topic, event, payload, metadata
}

/// Why a frame is no message. It is dropped and counted; the socket stays open and no reply is sent.
public enum MessageError: Error, Sendable, Hashable {
    /// Not JSON, not UTF-8, unpaired surrogates, or nested deeper than is read.
    case notJSON(offset: Int)
    /// Version 1 wants an object.
    case notAnObject
    /// Version 2 wants an array.
    case notAnArray
    case tooFewElements
    case missing(MessagePart)
    /// A topic or an event that is not a string, or a ref that is neither a string, a number nor null.
    case wrongType(MessagePart)
    case tooLong(MessagePart)
    /// A binary frame on a socket that speaks version 1.
    case binaryInVersion1
    case unknownKind(UInt8)
    /// A binary frame that is shorter than its lengths say.
    case truncated
    /// In a binary frame's text.
    case notUTF8(MessagePart)
    case badMetadata
}
