import Bytes

/// Valid message of a REST batch.
public struct BatchedMessage: Sendable, Hashable {
    /// Topic without the prefix `realtime:`.
    public let topic: [UInt8]
    public let event: [UInt8]
    /// Range of the payload in the request's body. The payload is a JSON object.
    public let payload: Range<Int>
    public let isPrivate: Bool
    /// Id of the message: a UUID in lower case, or empty.
    public let id: [UInt8]
}

/// Reason for which the hub refuses a batch as a whole.
public enum BatchError: Error, Sendable, Hashable {
    /// The body is not JSON. The hub answers with status 400.
    case malformed
    /// The batch has more messages than the hub accepts in one batch. The hub answers with
    /// `BroadcastAnswer.batchTooLarge`.
    case tooMany
    /// Some messages are invalid. The hub answers with status 422 and `body`, which names the errors.
    case invalid(body: [UInt8])
}

/// Body of `POST /api/broadcast`. The hub accepts all its messages or none.
public struct BroadcastBatch: Sendable, Hashable {
    public let messages: [BatchedMessage]

    public init(_ body: RawSpan, maximumMessages: Int, maximumPayloadBytes: Int) throws(BatchError) {
        var reader = BatchReader(maximumMessages: maximumMessages, maximumPayloadBytes: maximumPayloadBytes)
        do throws(MessageError) {
            if !body.isEmpty { try reader.read(body) }
        } catch {
            throw .malformed
        }
        if reader.isTooLong { throw .tooMany }
        guard reader.isValid else { throw .invalid(body: reader.errors) }
        messages = reader.messages
        assert(!messages.isEmpty && messages.count <= maximumMessages, "a valid batch has messages, and not too many")
    }
}

/// Reader that goes through a body once. It records every error, because the answer names all of them.
private struct BatchReader: ~Copyable {
    /// State of the key `messages`. If the key occurs twice, the last one counts.
    private enum List { case absent, invalid, given }

    private(set) var messages: [BatchedMessage] = []
    private(set) var isTooLong = false
    private var list = List.absent
    private var hasFaultyMessage = false
    /// Errors as text: one JSON object per message, separated by commas, without the enclosing brackets.
    private var faults = ByteWriter()
    private var count = 0
    private let maximumMessages: Int
    private let maximumPayloadBytes: Int

    init(maximumMessages: Int, maximumPayloadBytes: Int) {
        self.maximumMessages = maximumMessages
        self.maximumPayloadBytes = maximumPayloadBytes
    }

    var isValid: Bool { list == .given && count > 0 && !hasFaultyMessage }

    var errors: [UInt8] {
        var writer = ByteWriter(capacity: faults.count + 64)
        writer.append("{\"errors\":{\"messages\":[")
        switch list {
        case .invalid: writer.append("\"is invalid\"")
        case .given where count > 0: writer.append(faults.bytes)
        case .absent, .given: writer.append("\"can't be blank\"")
        }
        writer.append("]}}")
        return writer.copied()
    }

    mutating func read(_ body: RawSpan) throws(MessageError) {
        var scanner = JSONScanner(body, maximumDepth: JSONScanner.deepest)
        let first = try scanner.token()
        if first == .beginObject {
            while try scanner.token() == .name {
                let isList = scanner.equals("messages")
                let token = try scanner.token()
                if isList { try readList(token, &scanner) } else { try scanner.pass(token) }
            }
        } else {
            try scanner.pass(first)
        }
        guard try scanner.token() == .end else { throw .notJSON(offset: scanner.offset) }
    }

    private mutating func readList(_ token: JSONToken, _ scanner: inout JSONScanner) throws(MessageError) {
        forget()
        guard token == .beginArray else {
            list = token == .null ? .absent : .invalid
            return try scanner.pass(token)
        }
        list = .given
        while true {
            let token = try scanner.token()
            if token == .endArray { return }
            guard token == .beginObject, count < maximumMessages else {
                if token == .beginObject { isTooLong = true } else { list = .invalid }
                try scanner.pass(token)
                continue
            }
            var draft = MessageDraft()
            try draft.read(&scanner)
            finish(draft)
        }
    }

    private mutating func forget() {
        messages = []
        faults.removeAll()
        count = 0
        hasFaultyMessage = false
        isTooLong = false
    }

    private mutating func finish(_ draft: MessageDraft) {
        assert(count < maximumMessages, "only messages that there is room for are read")
        if count > 0 { faults.append(UInt8(ascii: ",")) }
        count += 1
        let before = faults.count
        draft.appendFaults(maximumPayloadBytes: maximumPayloadBytes, to: &faults)
        if faults.count > before + 2 {
            hasFaultyMessage = true
        } else if let message = draft.message {
            messages.append(message)
        }
        assert(hasFaultyMessage || messages.count == count, "every message without an error is kept")
    }
}

/// Message whose members are still being read. It lists its errors in the order of the members' names.
private struct MessageDraft {
    /// Value that the message gives for one of its members.
    enum Field<Value> {
        case blank, invalid
        case given(Value)

        var value: Value? {
            if case .given(let value) = self { value } else { nil }
        }
    }

    private var event = Field<[UInt8]>.blank
    private var id = Field<[UInt8]>.blank
    private var payload = Field<Range<Int>>.blank
    private var isPrivate = Field<Bool>.blank
    private var topic = Field<[UInt8]>.blank

    /// Broadcast with the members read so far; nil if a required member is missing or invalid.
    var message: BatchedMessage? {
        guard let topic = topic.value, let event = event.value, let payload = payload.value else { return nil }
        return BatchedMessage(
            topic: topic, event: event, payload: payload, isPrivate: isPrivate.value ?? false, id: id.value ?? [])
    }

    mutating func read(_ scanner: inout JSONScanner) throws(MessageError) {
        while try scanner.token() == .name {
            if scanner.equals("event") {
                event = try Self.text(&scanner)
            } else if scanner.equals("id") {
                id = Self.uuid(try Self.text(&scanner))
            } else if scanner.equals("payload") {
                payload = try Self.object(&scanner)
            } else if scanner.equals("private") {
                isPrivate = try Self.boolean(&scanner)
            } else if scanner.equals("topic") {
                topic = try Self.text(&scanner)
            } else {
                try scanner.pass(try scanner.token())
            }
        }
    }

    // MARK: Members

    private static func text(_ scanner: inout JSONScanner) throws(MessageError) -> Field<[UInt8]> {
        let token = try scanner.token()
        guard token == .string else {
            try scanner.pass(token)
            return token == .null ? .blank : .invalid
        }
        var writer = ByteWriter(capacity: scanner.tokenBytes.byteCount + 1)
        scanner.appendText(to: &writer)
        let text = writer.copied()
        let isBlank = text.allSatisfy { $0 == 0x20 || (0x09...0x0d).contains($0) }
        return isBlank ? .blank : .given(text)
    }

    private static func object(_ scanner: inout JSONScanner) throws(MessageError) -> Field<Range<Int>> {
        let token = try scanner.token()
        let range = try scanner.range(of: token)
        if token == .beginObject { return .given(range) }
        return token == .null ? .blank : .invalid
    }

    private static func boolean(_ scanner: inout JSONScanner) throws(MessageError) -> Field<Bool> {
        let token = try scanner.token()
        switch token {
        case .bool(let value): return .given(value)
        case .null: return .blank
        case .string:
            switch scanner.tokenBytes.byteCount <= 5 ? scanner.text : "?" {
            case "true", "1": return .given(true)
            case "false", "0": return .given(false)
            case "": return .blank
            default: return .invalid
            }
        default:
            try scanner.pass(token)
            return .invalid
        }
    }

    /// Returns the field's UUID (36 hex digits and hyphens) in lower case. Any other text is invalid.
    private static func uuid(_ field: Field<[UInt8]>) -> Field<[UInt8]> {
        guard let text = field.value else { return field }
        guard text.count == 36 else { return .invalid }
        var uuid: [UInt8] = []
        for (place, byte) in text.enumerated() {
            let isHyphen = place == 8 || place == 13 || place == 18 || place == 23
            guard isHyphen ? byte == UInt8(ascii: "-") : Hex.value(byte) != nil else { return .invalid }
            uuid.append((65...90).contains(byte) ? byte | 0x20 : byte)
        }
        return .given(uuid)
    }

    // MARK: Faults

    /// Writes the errors of the message as a JSON object, which is empty if there are none.
    func appendFaults(maximumPayloadBytes: Int, to writer: inout ByteWriter) {
        writer.append(UInt8(ascii: "{"))
        var isFirst = true
        append(Self.fault(event, isRequired: true), of: "event", &isFirst, to: &writer)
        append(Self.fault(id, isRequired: false), of: "id", &isFirst, to: &writer)
        let isTooLarge = payload.value.map { $0.count > maximumPayloadBytes } ?? false
        append(
            isTooLarge ? "Payload size exceeds tenant limit" : Self.fault(payload, isRequired: true), of: "payload",
            &isFirst, to: &writer)
        append(Self.fault(isPrivate, isRequired: false), of: "private", &isFirst, to: &writer)
        append(Self.fault(topic, isRequired: true), of: "topic", &isFirst, to: &writer)
        writer.append(UInt8(ascii: "}"))
    }

    private static func fault<Value>(_ field: Field<Value>, isRequired: Bool) -> StaticString? {
        switch field {
        case .given: nil
        case .invalid: "is invalid"
        case .blank: isRequired ? "can't be blank" : nil
        }
    }

    private func append(
        _ fault: StaticString?, of name: StaticString, _ isFirst: inout Bool, to writer: inout ByteWriter
    ) {
        guard let fault else { return }
        writer.append(isFirst ? "\"" : ",\"")
        writer.append(name)
        writer.append("\":[\"")
        writer.append(fault)
        writer.append("\"]")
        isFirst = false
    }
}
