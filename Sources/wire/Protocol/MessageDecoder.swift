import Bytes

/// Decoder of clients' frames. It takes the bytes of one text or binary frame and returns the message, read in place.
/// Otherwise it throws the reason why the frame is not a message.
///
/// The decoder stores text of the last message only, so one decoder serves all sockets of a loop.
public struct MessageDecoder: ~Copyable {
    /// Longest topic in bytes. A channel stores its topic and refs for its whole life, so longer ones are refused.
    private let maximumTopicBytes: Int
    private let maximumRefBytes: Int
    /// Topic, event and refs of the last message: strings without escapes, refs as JSON tokens.
    private var text = ByteWriter(capacity: 512)

    /// Size to which the text buffer shrinks after a message with a long event name.
    private static let usualTextBytes = 16 << 10

    public init(maximumTopicBytes: Int, maximumRefBytes: Int) {
        precondition(maximumTopicBytes > 0 && maximumRefBytes > 0, "a message has a topic, and a ref may be empty")
        self.maximumTopicBytes = maximumTopicBytes
        self.maximumRefBytes = maximumRefBytes
    }

    @_lifetime(copy frame, &self)
    public mutating func decodeText(
        _ frame: RawSpan, _ version: SerializerVersion
    ) throws(MessageError) -> ClientMessage {
        forgetText()
        let fields = version == .v1 ? try object(frame) : try array(frame)
        try check(fields)
        return ClientMessage(fields, text: text.bytes, payload: frame)
    }

    @_lifetime(copy frame, &self)
    public mutating func decodeBinary(
        _ frame: RawSpan, _ version: SerializerVersion
    ) throws(MessageError) -> ClientMessage {
        guard version == .v2 else { throw .binaryInVersion1 }
        forgetText()
        let fields = try binary(frame)
        try check(fields)
        return ClientMessage(fields, text: text.bytes, payload: frame)
    }

    private mutating func forgetText() {
        text.removeAll()
        text.shrink(to: Self.usualTextBytes)
    }

    private func check(_ fields: MessageFields) throws(MessageError) {
        guard fields.topic.count <= maximumTopicBytes else { throw .tooLong(.topic) }
        guard fields.ref.count <= maximumRefBytes else { throw .tooLong(.ref) }
        guard fields.joinRef.count <= maximumRefBytes else { throw .tooLong(.joinRef) }
    }

    // MARK: Text

    /// Reads version 1: `{"topic":…,"event":…,"payload":…,"ref":…,"join_ref":…}` in any order. If a name occurs twice,
    /// the last one counts.
    private mutating func object(_ frame: RawSpan) throws(MessageError) -> MessageFields {
        var scanner = JSONScanner(frame, maximumDepth: JSONScanner.deepest)
        guard try scanner.token() == .beginObject else { throw .notAnObject }
        var fields = MessageFields()
        var seen: DemandedKeys = []
        while try scanner.token() == .name {
            let part = Self.part(named: scanner)
            let token = try scanner.token()
            guard let part else {
                try scanner.pass(token)
                continue
            }
            try read(part, token, &scanner, into: &fields)
            seen.insert(DemandedKeys(part))
        }
        guard try scanner.token() == .end else { throw .notJSON(offset: scanner.offset) }
        if let part = seen.missing { throw .missing(part) }
        return fields
    }

    /// Returns the part of a message to which a member's name belongs. Names with escapes are compared slowly; no known
    /// client writes them.
    private static func part(named scanner: borrowing JSONScanner) -> MessagePart? {
        if scanner.hasEscapes {
            switch scanner.text {
            case "topic": return .topic
            case "event": return .event
            case "payload": return .payload
            case "ref": return .ref
            case "join_ref": return .joinRef
            default: return nil
            }
        }
        if scanner.equals("topic") { return .topic }
        if scanner.equals("event") { return .event }
        if scanner.equals("payload") { return .payload }
        if scanner.equals("ref") { return .ref }
        if scanner.equals("join_ref") { return .joinRef }
        return nil
    }

    /// Reads version 2: `[join_ref, ref, topic, event, payload]`. Further elements are ignored.
    private mutating func array(_ frame: RawSpan) throws(MessageError) -> MessageFields {
        var scanner = JSONScanner(frame, maximumDepth: JSONScanner.deepest)
        guard try scanner.token() == .beginArray else { throw .notAnArray }
        var fields = MessageFields()
        for part in [MessagePart.joinRef, .ref, .topic, .event, .payload] {
            let token = try scanner.token()
            guard token != .endArray else { throw .tooFewElements }
            try read(part, token, &scanner, into: &fields)
        }
        while true {
            let token = try scanner.token()
            if token == .endArray { break }
            try scanner.pass(token)
        }
        guard try scanner.token() == .end else { throw .notJSON(offset: scanner.offset) }
        return fields
    }

    private mutating func read(
        _ part: MessagePart, _ token: JSONToken, _ scanner: inout JSONScanner, into fields: inout MessageFields
    ) throws(MessageError) {
        assert(part != .metadata, "a text message has no metadata")
        switch part {
        case .topic: fields.topic = try string(part, token, scanner)
        case .event: fields.event = try string(part, token, scanner)
        case .ref: fields.ref = try ref(part, token, scanner)
        case .joinRef: fields.joinRef = try ref(part, token, scanner)
        case .payload, .metadata: fields.payload = try scanner.range(of: token)
        }
        // A ref that is an object or an array was refused above, so only the payload can be a nested value here.
    }

    private mutating func string(
        _ part: MessagePart, _ token: JSONToken, _ scanner: borrowing JSONScanner
    ) throws(MessageError) -> Range<Int> {
        guard token == .string else { throw .wrongType(part) }
        let start = text.count
        scanner.appendText(to: &text)
        return start..<text.count
    }

    /// Copies a ref's token unchanged, with its quotes, because the hub repeats it to the client byte for byte. Returns
    /// its range in `text`.
    private mutating func ref(
        _ part: MessagePart, _ token: JSONToken, _ scanner: borrowing JSONScanner
    ) throws(MessageError) -> Range<Int> {
        let start = text.count
        switch token {
        case .null: break
        case .number: text.append(scanner.tokenBytes)
        case .string:
            text.append(UInt8(ascii: "\""))
            text.append(scanner.tokenBytes)
            text.append(UInt8(ascii: "\""))
        default: throw .wrongType(part)
        }
        return start..<text.count
    }

    // MARK: Binary

    private mutating func binary(_ frame: RawSpan) throws(MessageError) -> MessageFields {
        guard frame.byteCount > 0 else { throw .truncated }
        switch frame.byte(0) {
        case 0: return try push(frame)
        case 3: return try userBroadcast(frame)
        case let kind: throw .unknownKind(kind)
        }
    }

    /// Reads kind 0: `0 · joinRefLen · refLen · topicLen · eventLen · joinRef · ref · topic · event · data…`
    private mutating func push(_ frame: RawSpan) throws(MessageError) -> MessageFields {
        guard frame.byteCount >= 5 else { throw .truncated }
        var fields = MessageFields()
        var at = 5
        fields.form = .opaque
        fields.joinRef = try quoted(.joinRef, in: frame, at: &at, frame.byte(1))
        fields.ref = try quoted(.ref, in: frame, at: &at, frame.byte(2))
        fields.topic = try plain(.topic, in: frame, at: &at, frame.byte(3))
        fields.event = try plain(.event, in: frame, at: &at, frame.byte(4))
        fields.payload = at..<frame.byteCount
        return fields
    }

    /// Reads kind 3, whose event is `broadcast`: `3 · joinRefLen · refLen · topicLen · userEventLen · metadataLen ·
    /// encoding · joinRef · ref · topic · userEvent · metadata · payload…`
    private mutating func userBroadcast(_ frame: RawSpan) throws(MessageError) -> MessageFields {
        guard frame.byteCount >= 7 else { throw .truncated }
        var fields = MessageFields()
        var at = 7
        fields.form = frame.byte(6) == 0 ? .userBinary : .userJSON
        fields.joinRef = try quoted(.joinRef, in: frame, at: &at, frame.byte(1))
        fields.ref = try quoted(.ref, in: frame, at: &at, frame.byte(2))
        fields.topic = try plain(.topic, in: frame, at: &at, frame.byte(3))
        fields.userEvent = try plain(.event, in: frame, at: &at, frame.byte(4))
        // The metadata must be valid, but the hub does not pass it on.
        let metadata = try piece(of: frame, at: &at, frame.byte(5))
        guard metadata.isEmpty || JSONScanner.isValue(frame.extracting(metadata)) else { throw .badMetadata }
        let start = text.count
        text.append("broadcast")
        fields.event = start..<text.count
        fields.payload = at..<frame.byteCount
        return fields
    }

    private func piece(of frame: RawSpan, at offset: inout Int, _ length: UInt8) throws(MessageError) -> Range<Int> {
        let left = frame.byteCount - offset
        assert(left >= 0, "the pieces before lie within the frame")
        guard left >= Int(length) else { throw .truncated }
        defer { offset += Int(length) }
        return offset..<offset + Int(length)
    }

    private mutating func plain(
        _ part: MessagePart, in frame: RawSpan, at offset: inout Int, _ length: UInt8
    ) throws(MessageError) -> Range<Int> {
        let piece = frame.extracting(try piece(of: frame, at: &offset, length))
        guard UTF8Text.isValid(piece) else { throw .notUTF8(part) }
        let start = text.count
        text.append(piece)
        return start..<text.count
    }

    /// Copies a ref of a binary frame and adds the quotes that it needs in text replies.
    private mutating func quoted(
        _ part: MessagePart, in frame: RawSpan, at offset: inout Int, _ length: UInt8
    ) throws(MessageError) -> Range<Int> {
        let piece = frame.extracting(try piece(of: frame, at: &offset, length))
        guard UTF8Text.isValid(piece) else { throw .notUTF8(part) }
        let start = text.count
        if !piece.isEmpty { JSONText.appendString(piece, to: &text) }
        return start..<text.count
    }
}

/// Set of those keys that version 1 requires and a message has.
private struct DemandedKeys: OptionSet {
    let rawValue: UInt8

    static let topic = DemandedKeys(rawValue: 1)
    static let event = DemandedKeys(rawValue: 2)
    static let payload = DemandedKeys(rawValue: 4)
    static let ref = DemandedKeys(rawValue: 8)

    init(rawValue: UInt8) { self.rawValue = rawValue }

    init(_ part: MessagePart) {
        switch part {
        case .topic: self = .topic
        case .event: self = .event
        case .payload: self = .payload
        case .ref: self = .ref
        case .joinRef, .metadata: self = []
        }
    }

    var missing: MessagePart? {
        if !contains(.topic) { return .topic }
        if !contains(.event) { return .event }
        if !contains(.payload) { return .payload }
        return contains(.ref) ? nil : .ref
    }
}
