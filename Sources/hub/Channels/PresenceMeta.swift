import Bytes

/// Presence that a channel tracks, in the JSON form that clients receive. It is written once, and all loops share it.
public struct PresenceMeta: Sendable, Hashable {
    public let ref: PresenceRef
    /// Offset in `json` at which the members that the client set begin; the closing brace follows them.
    let start: UInt16
    /// JSON object with `phx_ref`, `phx_ref_prev` if this presence replaces another of the tracker, and the client's
    /// members.
    public let json: [UInt8]

    /// Creates a presence. `members` must end with the brace that closes the object.
    init(_ ref: PresenceRef, previous: PresenceRef?, members: RawSpan) {
        var writer = ByteWriter(capacity: members.byteCount + 80)
        writer.append("{\"phx_ref\":\"")
        ref.append(to: &writer)
        if let previous {
            writer.append("\",\"phx_ref_prev\":\"")
            previous.append(to: &writer)
        }
        writer.append(members.byteCount > 1 ? "\"," : "\"")
        start = UInt16(writer.count)
        writer.append(members)
        self.ref = ref
        json = writer.copied()
        assert(json.first == UInt8(ascii: "{") && json.last == UInt8(ascii: "}"), "a presence that is no object")
    }

    /// Creates a presence from its stored parts.
    init(stored ref: PresenceRef, _ start: UInt16, _ json: [UInt8]) {
        self.ref = ref
        self.start = start
        self.json = json
    }

    func hasMembers(_ members: RawSpan) -> Bool { self.members.equals(members) }

    private var members: RawSpan {
        @_lifetime(borrow self)
        get {
            // SAFETY: any byte is a valid UInt8; the span lives no longer than `json`, which belongs to `self`.
            let span = unsafe json.span.bytes.extracting(Int(start)..<json.count)
            return unsafe _overrideLifetime(span, borrowing: self)
        }
    }

    /// Appends the JSON object that the client tracked, without whitespace between tokens.
    public func appendPayload(to writer: inout ByteWriter) {
        writer.append(UInt8(ascii: "{"))
        writer.append(members)
    }

    /// Appends the members of a tracked JSON object and its closing brace, without whitespace between tokens. Leaves
    /// out members that only the hub may set.
    static func appendMembers(of payload: RawSpan, to writer: inout ByteWriter) throws(PresenceRefusal) {
        guard !payload.isEmpty else { return writer.append("}") }
        do throws(ByteError) {
            try appendChecked(payload, to: &writer)
        } catch {
            throw .notAnObject
        }
    }

    private static func appendChecked(_ payload: RawSpan, to writer: inout ByteWriter) throws(ByteError) {
        var scanner = JSONScanner(payload, maximumDepth: JSONScanner.deepest)
        guard try scanner.next() == .beginObject else { throw ByteError(expected: "an object", offset: 0) }
        var depth = 1
        var needsComma = false
        while depth > 0 {
            let token = try scanner.next()
            if token == .name, depth == 1, isReserved(scanner) {
                try scanner.skip(try scanner.next())
                continue
            }
            if token != .endObject, token != .endArray, needsComma { writer.append(UInt8(ascii: ",")) }
            append(token, scanner, to: &writer)
            needsComma = token != .beginObject && token != .beginArray && token != .name
            if token == .beginObject || token == .beginArray { depth += 1 }
            if token == .endObject || token == .endArray { depth -= 1 }
        }
        guard try scanner.next() == .end else { throw ByteError(expected: "the end", offset: scanner.offset) }
    }

    private static func isReserved(_ scanner: borrowing JSONScanner) -> Bool {
        if scanner.hasEscapes { return scanner.text == "phx_ref" || scanner.text == "phx_ref_prev" }
        return scanner.equals("phx_ref") || scanner.equals("phx_ref_prev")
    }

    private static func append(_ token: JSONToken, _ scanner: borrowing JSONScanner, to writer: inout ByteWriter) {
        switch token {
        case .beginObject: writer.append(UInt8(ascii: "{"))
        case .endObject: writer.append(UInt8(ascii: "}"))
        case .beginArray: writer.append(UInt8(ascii: "["))
        case .endArray: writer.append(UInt8(ascii: "]"))
        case .name, .string:
            writer.append(UInt8(ascii: "\""))
            writer.append(scanner.tokenBytes)
            writer.append(token == .name ? "\":" : "\"")
        case .number: writer.append(scanner.tokenBytes)
        case .bool(true): writer.append("true")
        case .bool(false): writer.append("false")
        case .null: writer.append("null")
        case .end: break
        }
    }
}

/// Channel that tracks a presence. A channel tracks at most one at a time.
public struct PresenceTracker: Sendable, Hashable {
    public let loop: UInt16
    /// Number of the channel on its loop, which is not reused while the project runs.
    public let channel: UInt64

    public init(loop: UInt16, channel: UInt64) {
        self.loop = loop
        self.channel = channel
    }
}

/// Change of one tracker's presence, sent to the other loops.
public struct PresenceChange: Sendable, Hashable {
    public let tracker: PresenceTracker
    public let topic: TopicName
    /// Key of the presence as a JSON string, including its quotes.
    public let key: [UInt8]
    /// Presence that begins with this change; nil if the presence has ended.
    public let joined: PresenceMeta?
    /// Presence that ends with this change; nil if there was none.
    public let left: PresenceMeta?

    public init(
        tracker: PresenceTracker, topic: TopicName, key: [UInt8], joined: PresenceMeta?, left: PresenceMeta?
    ) {
        self.tracker = tracker
        self.topic = topic
        self.key = key
        self.joined = joined
        self.left = left
    }

    /// Estimated memory of the change while it waits for another loop.
    public var byteCount: Int { 128 + key.count + (joined?.json.count ?? 0) }
}

/// Reason why the hub refuses to track a presence.
public enum PresenceRefusal: Error, Sendable, Hashable {
    case notAnObject
    case tooLarge
    /// The topic has the maximum number of presences.
    case topicFull
    case tooManyTopics
}

/// Limits of a project's presence on one loop. A loop does not apply them to presences of other loops.
public struct PresenceLimits: Sendable, Hashable {
    public var maximumTopics: Int
    public var maximumMetasPerTopic: Int
    /// Maximum size in bytes of a tracked object, without whitespace between tokens.
    public var maximumMetaBytes: Int

    public init(maximumTopics: Int, maximumMetasPerTopic: Int, maximumMetaBytes: Int) {
        self.maximumTopics = maximumTopics
        self.maximumMetasPerTopic = maximumMetasPerTopic
        self.maximumMetaBytes = maximumMetaBytes
    }
}
