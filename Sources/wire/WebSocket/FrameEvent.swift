/// Event that a decoder finds in a peer's bytes.
public enum FrameEvent: Equatable, Sendable {
    /// No further event is complete. The frame that begins after the consumed bytes has at least `total` bytes. `total`
    /// is 0 if the connection has ended, so that the caller reads nothing more.
    case needMore(total: Int)
    case message(MessageKind, MessagePlace)
    /// A ping, which requires a pong with the same payload.
    case ping(Range<Int>)
    case pong(Range<Int>)
    /// The peer's last frame. `reason` is the range of its reason, which is valid text. The code is nil if the frame
    /// was empty.
    case close(CloseCode?, reason: Range<Int>)
    /// The peer violates the protocol. The caller answers with a close frame and reads nothing more.
    case violation(FrameViolation)
}

/// Place of a message's bytes.
public enum MessagePlace: Equatable, Sendable {
    /// Range in the given bytes, unmasked; valid until those bytes change.
    case inPlace(Range<Int>)
    /// The message arrived in fragments or compressed. `takeMessage()` returns it.
    case assembled
}

/// Step of a decoder through a peer's bytes.
public struct FrameStep: Equatable, Sendable {
    public let event: FrameEvent
    /// Number of consumed bytes, counted from the given offset.
    public let consumed: Int
}

/// Violation of the protocol by a peer. Each has the close code that the answer must have.
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

    /// Reason for the close frame: a fixed sentence.
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
