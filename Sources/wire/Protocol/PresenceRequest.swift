import Bytes

/// Request in a presence message of a client.
public enum PresenceRequest: Sendable, Hashable {
    /// Track a JSON object. The range is the object's place in the message's payload; an empty range means an empty
    /// object.
    case track(Range<Int>)
    case untrack
    /// The presence message names no event. The hub answers ok and does not count the message.
    case nothing
    /// The tracked value is not an object. The hub answers with `PresenceRequest.notAnObjectReason`.
    case payloadNotAnObject
    /// The message names an unknown event. The hub answers with an error that contains no details.
    case unknownEvent

    public static let notAnObjectReason: StaticString = "Presence track payload must be a map"

    public init(_ message: borrowing ClientMessage) {
        self = message.form == .json ? PresenceRequest(payload: message.payload) : .nothing
    }

    /// Reads the request from `payload`, which must be exactly one valid JSON value.
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
        // If a name occurs twice, the last one counts.
        while try scanner.token() == .name {
            let isEvent = names("event", scanner)
            let isPayload = names("payload", scanner)
            let token = try scanner.token()
            if isEvent { request = event(token, scanner) }
            let range = try scanner.range(of: token)
            if isPayload { tracked = token == .beginObject ? range : nil }
            let first = payload.byte(range.lowerBound)
            assert(token != .beginObject || first == UInt8(ascii: "{"), "the range of an object begins with its brace")
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
    /// Appends all presences of a topic, for a channel that has just joined. `state` is an object of presence keys with
    /// their metas.
    public func appendPresenceState(
        _ state: RawSpan, topic: RawSpan, joinRef: RawSpan, to writer: inout ByteWriter
    ) {
        appendPush("presence_state", payload: state, topic: topic, joinRef: joinRef, to: &writer)
    }

    /// Appends a change of presences; all members of a topic get the same text. It has no join_ref, because clients
    /// drop a message whose join_ref is not current.
    public func appendPresenceDiff(_ difference: RawSpan, topic: RawSpan, to writer: inout ByteWriter) {
        appendPush("presence_diff", payload: difference, topic: topic, joinRef: RawSpan(), to: &writer)
    }
}
