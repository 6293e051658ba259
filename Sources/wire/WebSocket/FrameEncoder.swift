import Bytes

/// Writer of a server's frames. They are never masked and never fragmented, so the same bytes can be sent to every
/// subscriber.
public enum FrameEncoder {
    /// Appends the header of a message's only frame, for callers that send the payload separately.
    public static func appendHeader(
        _ kind: MessageKind, payloadBytes: Int, isCompressed: Bool = false, to writer: inout ByteWriter
    ) {
        FrameWriting.appendHeader(
            kind.opcode, payloadBytes: payloadBytes, isCompressed: isCompressed, mask: nil, to: &writer)
    }

    public static func headerBytes(payloadBytes: Int) -> Int {
        payloadBytes <= FrameSize.maximumControlPayloadBytes ? 2 : payloadBytes <= UInt16.max ? 4 : 10
    }

    public static func append(_ kind: MessageKind, _ payload: RawSpan, to writer: inout ByteWriter) {
        appendHeader(kind, payloadBytes: payload.byteCount, to: &writer)
        writer.append(payload)
    }

    /// Appends a message as one frame. Compresses it if it has at least `threshold` bytes and becomes shorter. Returns
    /// true if it was compressed.
    ///
    /// Use it only for a peer that negotiated permessage-deflate with a suitable window (`DeflateAgreement.allows`).
    @discardableResult
    public static func append(
        _ kind: MessageKind, _ payload: RawSpan, compressedBy deflater: Deflater, above threshold: Int,
        to writer: inout ByteWriter
    ) -> Bool {
        if payload.byteCount >= threshold, deflater.appendFrame(kind, payload, to: &writer) { return true }
        append(kind, payload, to: &writer)
        return false
    }

    public static func appendPing(_ payload: RawSpan = RawSpan(), to writer: inout ByteWriter) {
        appendControl(.ping, payload, to: &writer)
    }

    public static func appendPong(_ payload: RawSpan, to writer: inout ByteWriter) {
        appendControl(.pong, payload, to: &writer)
    }

    private static func appendControl(_ opcode: Opcode, _ payload: RawSpan, to writer: inout ByteWriter) {
        FrameWriting.appendHeader(opcode, payloadBytes: payload.byteCount, mask: nil, to: &writer)
        writer.append(payload)
    }

    /// Appends a close frame. A reason that is too long is cut between two characters.
    public static func appendClose(_ code: CloseCode, _ reason: String = "", to writer: inout ByteWriter) {
        FrameWriting.appendClose(code, reason, mask: nil, to: &writer)
    }

    public static func appendClose(_ violation: FrameViolation, to writer: inout ByteWriter) {
        appendClose(violation.code, "\(violation.reason)", to: &writer)
    }

    /// Appends the answer to a peer's close frame: with the same code, or without a code if the peer gave none (RFC
    /// 6455 §5.5.1).
    public static func appendCloseReply(to code: CloseCode?, to writer: inout ByteWriter) {
        if let code {
            appendClose(code, to: &writer)
        } else {
            appendControl(.close, RawSpan(), to: &writer)
        }
    }
}

/// Writer of a client's frames, which are all masked. Tests, load generators and Tidewire's own clients use it.
public enum ClientFrameEncoder {
    public static func append(
        _ kind: MessageKind, _ payload: RawSpan, mask: UInt32, isCompressed: Bool = false, to writer: inout ByteWriter
    ) {
        FrameWriting.append(kind.opcode, payload, isCompressed: isCompressed, mask: mask, to: &writer)
    }

    /// Appends one fragment of a message. The first fragment has the message's kind; the last one is marked as final.
    public static func appendFragment(
        _ kind: MessageKind, _ payload: RawSpan, isFirst: Bool, isLast: Bool, mask: UInt32, isCompressed: Bool = false,
        to writer: inout ByteWriter
    ) {
        FrameWriting.append(
            isFirst ? kind.opcode : .continuation, payload, isFinal: isLast, isCompressed: isCompressed && isFirst,
            mask: mask, to: &writer)
    }

    public static func appendPing(_ payload: RawSpan, mask: UInt32, to writer: inout ByteWriter) {
        FrameWriting.append(.ping, payload, mask: mask, to: &writer)
    }

    public static func appendPong(_ payload: RawSpan, mask: UInt32, to writer: inout ByteWriter) {
        FrameWriting.append(.pong, payload, mask: mask, to: &writer)
    }

    public static func appendClose(
        _ code: CloseCode, _ reason: String = "", mask: UInt32, to writer: inout ByteWriter
    ) {
        FrameWriting.appendClose(code, reason, mask: mask, to: &writer)
    }
}

/// Writer of the layout of frames by RFC 6455 §5.2, for both directions.
enum FrameWriting {
    static func appendHeader(
        _ opcode: Opcode, payloadBytes: Int, isFinal: Bool = true, isCompressed: Bool = false, mask: UInt32?,
        to writer: inout ByteWriter
    ) {
        precondition(
            !opcode.isControl || payloadBytes <= FrameSize.maximumControlPayloadBytes,
            "a control frame carries 125 bytes at most")
        writer.append((isFinal ? 0x80 : 0) | (isCompressed ? 0x40 : 0) | opcode.rawValue)
        let masked: UInt8 = mask == nil ? 0 : 0x80
        switch payloadBytes {
        case 0...125:
            writer.append(masked | UInt8(payloadBytes))
        case 126...Int(UInt16.max):
            writer.append(masked | 126)
            writer.append(big: UInt16(payloadBytes))
        default:
            writer.append(masked | 127)
            writer.append(big: UInt64(payloadBytes))
        }
        if let mask { writer.append(little: mask) }
    }

    static func append(
        _ opcode: Opcode, _ payload: RawSpan, isFinal: Bool = true, isCompressed: Bool = false, mask: UInt32,
        to writer: inout ByteWriter
    ) {
        appendHeader(
            opcode, payloadBytes: payload.byteCount, isFinal: isFinal, isCompressed: isCompressed, mask: mask,
            to: &writer)
        appendMasked(payload, mask, to: &writer)
    }

    private static func appendMasked(_ payload: RawSpan, _ mask: UInt32, to writer: inout ByteWriter) {
        let count = payload.byteCount
        // SAFETY: the target has room for the payload's bytes, which are copied and masked before the closure ends; the
        // payload's memory is not the writer's.
        _ = unsafe writer.append(upTo: count) { target in
            unsafe payload.withUnsafeBytes { unsafe target.copyMemory(from: $0) }
            var bytes = unsafe MutableRawSpan(_unsafeBytes: target)
            Mask.apply(mask, to: &bytes, in: 0..<count, phase: 0)
            return count
        }
    }

    static func appendClose(_ code: CloseCode, _ reason: String, mask: UInt32?, to writer: inout ByteWriter) {
        precondition(code.mayBeSent, "a close frame cannot carry this code")
        var payload = ByteWriter()
        payload.append(big: code.rawValue)
        payload.append(String(decoding: cut(Array(reason.utf8)), as: UTF8.self))
        guard let mask else {
            appendHeader(.close, payloadBytes: payload.count, mask: nil, to: &writer)
            writer.append(payload.bytes)
            return
        }
        append(.close, payload.bytes, mask: mask, to: &writer)
    }

    /// Returns the longest beginning of the text that fits a close frame and does not end within a character.
    private static func cut(_ text: [UInt8]) -> ArraySlice<UInt8> {
        var end = min(text.count, FrameSize.maximumCloseReasonBytes)
        while end > 0, end < text.count, text[end] & 0xC0 == 0x80 { end -= 1 }
        return text[..<end]
    }
}

extension Deflater {
    /// Appends the whole frame. Returns false, and appends nothing, if compression would not make the message shorter.
    fileprivate func appendFrame(_ kind: MessageKind, _ payload: RawSpan, to writer: inout ByteWriter) -> Bool {
        withCompressed(payload) { compressed in
            FrameEncoder.appendHeader(kind, payloadBytes: compressed.byteCount, isCompressed: true, to: &writer)
            writer.append(compressed)
        }
    }
}
