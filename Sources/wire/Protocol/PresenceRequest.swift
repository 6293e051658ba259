import Bytes

/// What a client's presence push asks for.
public enum PresenceRequest: Sendable, Hashable {
    /// Track what lies here in the push's payload: a JSON object, or nothing, which stands for an empty one.
    case track(Range<Int>)
    case untrack
    /// No event is named: answered with ok, and not counted.
    case nothing
    /// Answered with `PresenceRequest.notAnObjectReason`.
    case payloadNotAnObject
    /// Answered with an error that says no more.
    case unknownEvent

    public static let notAnObjectReason: StaticString = "Presence track payload must be a map"

    public init(_ message: borrowing ClientMessage) {
        self = message.form == .json ? PresenceRequest(payload: message.payload) : .nothing
    }

    /// `payload` is one JSON value that has been checked.
    public init(payload: RawSpan) {
        do throws(MessageError) {
            self = try Self.read(payload)
        } catch {
            self = .nothing
        }
    }

    private static func read(_ payload: RawSpan) throws(MessageError) -> PresenceRequest {
        var scanner = JSONScanner(payload, maximumDepth: JSONScanner.deepest)
        guard try scanner.token() == .beginObject else { return .nothing }
        var request = PresenceRequest.nothing
        var tracked: Range<Int>? = 0..<0
        // Of a name that comes twice the last one counts.
        while try scanner.token() == .name {
            let isEvent = names("event", scanner)
            let isPayload = names("payload", scanner)
            let token = try scanner.token()
            if isEvent { request = event(token, scanner) }
            let range = try scanner.range(of: token)
            if isPayload { tracked = token == .beginObject ? range : nil }
        }
        guard case .track = request else { return request }
        return tracked.map { .track($0) } ?? .payloadNotAnObject
    }

    private static func names(_ name: StaticString, _ scanner: borrowing JSONScanner) -> Bool {
        scanner.equals(name) || scanner.hasEscapes && scanner.text == "\(name)"
    }

    private static func event(_ token: JSONToken, _ scanner: borrowing JSONScanner) -> PresenceRequest {
        guard token == .string, scanner.tokenBytes.byteCount <= 64 else { return .unknownEvent }
        switch scanner.text.lowercased() {
        case "track": return .track(0..<0)
        case "untrack": return .untrack
        default: return .unknownEvent
        }
    }
}

extension MessageEncoder {
    /// Who is there, for one who has joined. `state` is an object of keys with their metas.
    public func appendPresenceState(
        _ state: RawSpan, topic: RawSpan, joinRef: RawSpan, to writer: inout ByteWriter
    ) {
        appendPush("presence_state", payload: state, topic: topic, joinRef: joinRef, to: &writer)
    }

    /// Who came and who went, the same for all members. It has no join_ref: one that is not current makes clients drop it.
    public func appendPresenceDiff(_ difference: RawSpan, topic: RawSpan, to writer: inout ByteWriter) {
        appendPush("presence_diff", payload: difference, topic: topic, joinRef: RawSpan(), to: &writer)
    }
}
