/// Kind of a frame (RFC 6455 §5.2).
enum Opcode: UInt8 {
    case continuation = 0
    case text = 1
    case binary = 2
    case close = 8
    case ping = 9
    case pong = 10

    var isControl: Bool { rawValue >= 8 }
}

/// Sizes that RFC 6455 §5.2 and §5.5 define.
public enum FrameSize {
    public static let maximumControlPayloadBytes = 125
    public static let maximumCloseReasonBytes = maximumControlPayloadBytes - 2
}

/// Kind of a message that applications exchange.
public enum MessageKind: Sendable {
    case text
    case binary

    var opcode: Opcode { self == .text ? .text : .binary }
}

/// Complete header of a frame.
struct FrameHeader {
    let opcode: Opcode
    let isFinal: Bool
    /// Bit RSV1, which is set only in the first frame of a compressed message (RFC 7692 §6).
    let isCompressed: Bool
    /// Mask of the payload, with its first byte as the lowest; 0 if the frame is not masked.
    let mask: UInt32
    let headerBytes: Int
    let payloadBytes: Int

    var frameBytes: Int { headerBytes + payloadBytes }
}
