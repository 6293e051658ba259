/// What the bytes of a peer turned out to be.
public enum FrameEvent: Equatable, Sendable {
    /// Nothing more to be had from these bytes. The frame that begins where the consumed bytes end needs at least `total`
    /// bytes; 0 when the conversation is over and nothing will be read any more.
    case needMore(total: Int)
    case message(MessageKind, MessagePlace)
    /// To be answered by a pong with the same payload.
    case ping(Range<Int>)
    case pong(Range<Int>)
    /// The peer's last frame; its reason is text. Without a code, the frame was empty.
    case close(CloseCode?, reason: Range<Int>)
    /// The peer breaks the rules: to be told so by a close frame, and nothing more is read.
    case violation(FrameViolation)
}

/// Where a message lies.
public enum MessagePlace: Equatable, Sendable {
    /// In the bytes that were given, unmasked; valid until they change.
    case inPlace(Range<Int>)
    /// It came in pieces or compressed: `takeMessage()` hands it over.
    case assembled
}

/// One step through a peer's bytes.
public struct FrameStep: Equatable, Sendable {
    public let event: FrameEvent
    /// How many bytes from the offset that was given are done with.
    public let consumed: Int
}

/// What a peer did wrong, which says the code it is told.
public enum FrameViolation: Error, Equatable, CaseIterable {
    case unmasked, masked, reservedBits, unknownOpcode, fragmentedControl, longControl, strayContinuation
    case interruptedMessage, lengthNotMinimal, lengthTooLarge, shortClose, invalidCloseCode
    case messageTooLarge, tooManyFragments, invalidText, invalidCloseReason, invalidCompression

    public var code: CloseCode {
        switch self {
        case .messageTooLarge: .messageTooBig
        case .tooManyFragments: .policyViolation
        case .invalidText, .invalidCloseReason, .invalidCompression: .invalidPayload
        default: .protocolError
        }
    }

    /// For the close frame: a fixed sentence.
    public var reason: StaticString {
        switch self {
        case .unmasked: "a client's frames are masked"
        case .masked: "a server's frames are not masked"
        case .reservedBits: "a reserved bit is set"
        case .unknownOpcode: "an unknown kind of frame"
        case .fragmentedControl: "a control frame in fragments"
        case .longControl: "a control frame of more than 125 bytes"
        case .strayContinuation: "a continuation of nothing"
        case .interruptedMessage: "a message inside another one"
        case .lengthNotMinimal: "a length in more bytes than it needs"
        case .lengthTooLarge: "a length with its highest bit set"
        case .shortClose: "a close code of one byte"
        case .invalidCloseCode: "a close code that must not be sent"
        case .messageTooLarge: "the message is too large"
        case .tooManyFragments: "the message has too many fragments"
        case .invalidText: "the text is not UTF-8"
        case .invalidCloseReason: "the close reason is not UTF-8"
        case .invalidCompression: "the message cannot be decompressed"
        }
    }
}
