import Bytes

/// Decoder that turns a peer's bytes into messages: RFC 6455 §5, and RFC 7692 if compression was negotiated.
///
/// The decoder stores only the bytes of a fragmented message. It unmasks frames in place, even incomplete ones.
/// Therefore the caller must pass unconsumed bytes again, unchanged, followed by new ones.
public struct FrameDecoder: ~Copyable {
    /// Settings of a decoder, the same for all connections of one kind.
    public struct Rules: Sendable {
        /// Largest message in bytes, both compressed and decompressed, in one frame or in several.
        public var maximumMessageBytes: Int
        public var maximumFragments: Int
        /// True in a server, because clients mask their frames; false in a client, because servers do not.
        public var expectsMask: Bool
        /// True if permessage-deflate was negotiated.
        public var allowsCompression: Bool
        /// True if text that is not UTF-8 is a violation; otherwise text is not checked.
        public var validatesText: Bool

        public init(
            maximumMessageBytes: Int, maximumFragments: Int, expectsMask: Bool = true, allowsCompression: Bool = false,
            validatesText: Bool = false
        ) {
            precondition(
                maximumMessageBytes >= 0 && maximumMessageBytes < Int(Int32.max)
                    && maximumFragments > 0 && maximumFragments < Int(Int32.max),
                "a message is smaller than 2 GiB")
            self.maximumMessageBytes = maximumMessageBytes
            self.maximumFragments = maximumFragments
            self.expectsMask = expectsMask
            self.allowsCompression = allowsCompression
            self.validatesText = validatesText
        }
    }

    /// Kind of the message that is not complete yet, after its first frame.
    private enum Progress: UInt8 {
        case none, text, binary, compressedText, compressedBinary
    }

    private let maximumMessageBytes: UInt32
    private let maximumFragments: UInt32
    private var fragments: UInt32 = 0
    /// Number of payload bytes of the current frame that are unmasked already and, if required, validated.
    private var opened: UInt32 = 0
    private let expectsMask: Bool
    private let allowsCompression: Bool
    private let validatesText: Bool
    private var isOver = false
    private var progress = Progress.none
    private var text = UTF8Validator()
    /// Payload of the fragments received so far. After the last fragment it is the whole message, until the caller
    /// takes it.
    private var assembled: ByteWriter?

    public init(_ rules: Rules) {
        maximumMessageBytes = UInt32(rules.maximumMessageBytes)
        maximumFragments = UInt32(rules.maximumFragments)
        expectsMask = rules.expectsMask
        allowsCompression = rules.allowsCompression
        validatesText = rules.validatesText
        assembled = nil
    }

    /// Returns the message that the last event announced as assembled. The next call of `next` discards it if the
    /// caller has not taken it.
    public mutating func takeMessage() -> ByteWriter {
        guard let message = assembled.take() else { preconditionFailure("there is no assembled message to take") }
        return message
    }

    /// Number of bytes stored for an unfinished message, plus one; 0 if there is no unfinished message.
    public var unfinishedBytes: Int { progress == .none ? 0 : Self.count(of: assembled) + 1 }

    /// Decodes the next event in the bytes from `offset` on. The caller repeats the call after the consumed bytes until
    /// the event is `needMore`.
    public mutating func next(
        in bytes: inout MutableRawSpan, from offset: Int, inflater: Inflater
    ) -> FrameStep {
        precondition(offset >= 0 && offset <= bytes.byteCount, "frames begin in the bytes that are given")
        if progress == .none { assembled = nil }
        var at = offset
        while !isOver {
            switch frame(in: &bytes, from: at, inflater) {
            case .event(let event, let length): return FrameStep(event: event, consumed: at + length - offset)
            case .fragment(let length): at += length
            case .violation(let violation):
                isOver = true
                assembled = nil
                return FrameStep(event: .violation(violation), consumed: bytes.byteCount - offset)
            }
        }
        // RFC 6455 §5.5.1, §7.1.7: bytes after a close frame or a violation are ignored.
        return FrameStep(event: .needMore(total: 0), consumed: bytes.byteCount - offset)
    }

    private enum Outcome {
        case event(FrameEvent, length: Int)
        case fragment(length: Int)
        case violation(FrameViolation)
    }

    private mutating func frame(in bytes: inout MutableRawSpan, from start: Int, _ inflater: Inflater) -> Outcome {
        do throws(FrameViolation) {
            let available = bytes.byteCount - start
            switch try header(bytes.bytes.extracting(start..<bytes.byteCount)) {
            case .incomplete(let total): return .event(.needMore(total: total), length: 0)
            case .complete(let header) where header.opcode.isControl:
                guard available >= header.frameBytes else { return needMore(header) }
                let payload = start + header.headerBytes..<start + header.frameBytes
                Mask.apply(header.mask, to: &bytes, in: payload, phase: 0)
                return .event(try control(header, bytes.bytes, payload), length: header.frameBytes)
            case .complete(let header):
                try open(header, in: &bytes, from: start + header.headerBytes)
                guard available >= header.frameBytes else { return needMore(header) }
                opened = 0
                let payload = start + header.headerBytes..<start + header.frameBytes
                guard let event = try data(header, bytes.bytes, payload, inflater) else {
                    return .fragment(length: header.frameBytes)
                }
                return .event(event, length: header.frameBytes)
            }
        } catch {
            return .violation(error)
        }
    }

    private func needMore(_ header: FrameHeader) -> Outcome {
        .event(.needMore(total: header.frameBytes), length: 0)
    }
}

// MARK: The header

extension FrameDecoder {
    private enum HeaderOutcome {
        case incomplete(total: Int)
        case complete(FrameHeader)
    }

    /// Parses the header, and checks each field as soon as it is present, in the order of the fields. So the same
    /// violation is found whether the frame arrives whole or in pieces.
    private func header(_ bytes: RawSpan) throws(FrameViolation) -> HeaderOutcome {
        guard bytes.byteCount >= 1 else { return .incomplete(total: minimumHeaderBytes) }
        let first = bytes.byte(0)
        let opcode = try opcode(first)
        guard bytes.byteCount >= 2 else { return .incomplete(total: minimumHeaderBytes) }
        let second = bytes.byte(1)
        try checkMask(second)
        if opcode.isControl, second & 0x7F > FrameSize.maximumControlPayloadBytes { throw .longControl }
        let lengthBytes = second & 0x7F == 127 ? 8 : second & 0x7F == 126 ? 2 : 0
        let headerBytes = minimumHeaderBytes + lengthBytes
        guard bytes.byteCount >= 2 + lengthBytes else { return .incomplete(total: headerBytes) }
        let payloadBytes = try length(bytes, second & 0x7F, lengthBytes)
        if !opcode.isControl { try checkSize(payloadBytes, opcode) }
        guard bytes.byteCount >= headerBytes else { return .incomplete(total: headerBytes + payloadBytes) }
        return .complete(
            FrameHeader(
                opcode: opcode, isFinal: first & 0x80 != 0, isCompressed: first & 0x40 != 0,
                mask: expectsMask ? mask(bytes, at: 2 + lengthBytes) : 0, headerBytes: headerBytes,
                payloadBytes: payloadBytes))
    }

    private var minimumHeaderBytes: Int { expectsMask ? 6 : 2 }

    private func opcode(_ first: UInt8) throws(FrameViolation) -> Opcode {
        guard first & 0x30 == 0 else { throw .reservedBits }
        guard let opcode = Opcode(rawValue: first & 0x0F) else { throw .unknownOpcode }
        if first & 0x40 != 0 {
            guard allowsCompression, opcode == .text || opcode == .binary else { throw .reservedBits }
        }
        switch opcode {
        case .close, .ping, .pong: if first & 0x80 == 0 { throw .fragmentedControl }
        case .continuation: if progress == .none { throw .strayContinuation }
        case .text, .binary: if progress != .none { throw .interruptedMessage }
        }
        return opcode
    }

    private func checkMask(_ second: UInt8) throws(FrameViolation) {
        let isMasked = second & 0x80 != 0
        // RFC 6455 §5.1: a client and a server must both fail the connection.
        if expectsMask, !isMasked { throw .unmasked }
        if !expectsMask, isMasked { throw .masked }
    }

    private func length(_ bytes: RawSpan, _ short: UInt8, _ lengthBytes: Int) throws(FrameViolation) -> Int {
        var length: UInt64 = 0
        for offset in 2..<2 + lengthBytes { length = length << 8 | UInt64(bytes.byte(offset)) }
        switch lengthBytes {
        case 2: if length < 126 { throw .lengthNotMinimal }
        case 8:
            if length >> 63 != 0 { throw .lengthTooLarge }
            if length <= UInt16.max { throw .lengthNotMinimal }
        default: return Int(short)
        }
        return Int(length)
    }

    /// Checks a frame's size before the payload arrives, so that the hub never waits for a message that it will refuse.
    private func checkSize(_ payloadBytes: Int, _ opcode: Opcode) throws(FrameViolation) {
        let before = opcode == .continuation ? Self.count(of: assembled) : 0
        guard payloadBytes <= Int(maximumMessageBytes) - before else { throw .messageTooLarge }
        if opcode == .continuation, fragments >= maximumFragments { throw .tooManyFragments }
    }

    private static func count(of bytes: borrowing ByteWriter?) -> Int {
        switch bytes {
        case .some(let bytes): bytes.count
        case .none: 0
        }
    }

    private func mask(_ bytes: RawSpan, at offset: Int) -> UInt32 {
        // SAFETY: the caller has seen that the header is complete, and the load checks its bounds.
        unsafe bytes.unsafeLoadUnaligned(fromByteOffset: offset, as: UInt32.self).littleEndian
    }
}

// MARK: Data frames

extension FrameDecoder {
    /// Unmasks the payload bytes of a frame that are new since the last call. Validates them as text if required.
    private mutating func open(
        _ header: FrameHeader, in bytes: inout MutableRawSpan, from start: Int
    ) throws(FrameViolation) {
        let done = Int(opened)
        let present = min(header.payloadBytes, bytes.byteCount - start)
        guard present > done else { return }
        let fresh = start + done..<start + present
        if expectsMask { Mask.apply(header.mask, to: &bytes, in: fresh, phase: done) }
        opened = UInt32(present)
        guard validatesText, isPlainText(header) else { return }
        guard text.accepts(bytes.bytes.extracting(fresh)) else { throw .invalidText }
    }

    private func isPlainText(_ header: FrameHeader) -> Bool {
        header.opcode == .text ? !header.isCompressed : progress == .text
    }

    /// Processes a complete data frame. Returns nil if the message continues in another frame.
    private mutating func data(
        _ header: FrameHeader, _ bytes: RawSpan, _ payload: Range<Int>, _ inflater: Inflater
    ) throws(FrameViolation) -> FrameEvent? {
        if header.opcode != .continuation {
            progress = Self.progress(header)
            fragments = 0
        }
        fragments += 1
        if header.isFinal, header.opcode != .continuation, !header.isCompressed {
            let kind: MessageKind = progress == .text ? .text : .binary
            try endText()
            progress = .none
            return .message(kind, .inPlace(payload))
        }
        if header.isFinal, header.isCompressed { return try inflated(bytes.extracting(payload), inflater) }
        if assembled == nil { assembled = ByteWriter(capacity: payload.count) }
        assembled?.append(bytes.extracting(payload))
        return header.isFinal ? try finish(inflater) : nil
    }

    private static func progress(_ header: FrameHeader) -> Progress {
        switch (header.opcode, header.isCompressed) {
        case (.text, false): .text
        case (.text, true): .compressedText
        case (_, false): .binary
        case (_, true): .compressedBinary
        }
    }

    private mutating func endText() throws(FrameViolation) {
        guard validatesText, progress == .text else { return }
        guard text.isBetweenCharacters else { throw .invalidText }
    }

    private mutating func finish(_ inflater: Inflater) throws(FrameViolation) -> FrameEvent {
        if progress == .compressedText || progress == .compressedBinary {
            let compressed = takeMessage()
            return try inflated(compressed.bytes, inflater)
        }
        let kind: MessageKind = progress == .text ? .text : .binary
        try endText()
        progress = .none
        return .message(kind, .assembled)
    }

    private mutating func inflated(_ compressed: RawSpan, _ inflater: Inflater) throws(FrameViolation) -> FrameEvent {
        var message = ByteWriter(capacity: min(compressed.byteCount * 4, Int(maximumMessageBytes)))
        do throws(InflateError) {
            try inflater.inflate(compressed, into: &message, limit: Int(maximumMessageBytes))
        } catch {
            switch error {
            case .malformed: throw .invalidCompression
            case .tooLarge: throw .messageTooLarge
            }
        }
        let kind: MessageKind = progress == .compressedText ? .text : .binary
        if validatesText, kind == .text, !UTF8Validator.isValid(message.bytes) { throw .invalidText }
        assembled = consume message
        progress = .none
        return .message(kind, .assembled)
    }
}

// MARK: Control frames

extension FrameDecoder {
    private mutating func control(
        _ header: FrameHeader, _ bytes: RawSpan, _ payload: Range<Int>
    ) throws(FrameViolation) -> FrameEvent {
        switch header.opcode {
        case .ping: return .ping(payload)
        case .pong: return .pong(payload)
        default: return try close(bytes, payload)
        }
    }

    private mutating func close(_ bytes: RawSpan, _ payload: Range<Int>) throws(FrameViolation) -> FrameEvent {
        isOver = true
        assembled = nil
        if payload.isEmpty { return .close(nil, reason: payload) }
        guard payload.count >= 2 else { throw .shortClose }
        let code = CloseCode(
            rawValue: UInt16(bytes.byte(payload.lowerBound)) << 8 | UInt16(bytes.byte(payload.lowerBound + 1)))
        guard code.mayBeSent else { throw .invalidCloseCode }
        let reason = payload.lowerBound + 2..<payload.upperBound
        guard UTF8Validator.isValid(bytes.extracting(reason)) else { throw .invalidCloseReason }
        return .close(code, reason: reason)
    }
}
