import Bytes

/// Request to join a channel: the payload of `phx_join`. A member with an invalid value gets its default and is
/// recorded in `problems`. The decoder has already refused payloads that are not JSON.
public struct JoinRequest: Sendable {
    /// True if `config` is missing. The topic then names the only subscription, and the hub sends changes in the older
    /// form.
    public internal(set) var isLegacy = true
    public internal(set) var isPrivate = false

    /// True if the client wants an acknowledgement for each of its broadcasts.
    public internal(set) var acknowledgesBroadcasts = false
    /// True if the channel also receives the broadcasts that it sends itself.
    public internal(set) var receivesOwnBroadcasts = false
    public internal(set) var wantsReplicationReady = false
    /// Request for old broadcasts, from the member `broadcast.replay`.
    public internal(set) var replay = ReplayDemand.none

    /// Presence key; nil if the hub has to generate one.
    public internal(set) var presenceKey: String?
    public internal(set) var enablesPresence = false

    /// Options of Tidewire that go beyond Supabase's protocol.
    public internal(set) var options = ExtensionOptions()
    /// Log position to resume from, from the member `tidewire.resume`. Goes beyond Supabase's protocol.
    public internal(set) var resumption = ResumeDemand.none

    /// Bindings in the order in which the client sent them. The hub's reply has the same order.
    public internal(set) var bindings: [ChangeBinding] = []
    /// True if the client sent more bindings than allowed. `bindings` then holds only the first ones, and the hub
    /// refuses the join.
    public internal(set) var hasTooManyBindings = false

    public internal(set) var token = JoinToken.ofSocket
    /// Names of members with invalid values. The hub logs them as `InvalidJoinPayload`, never with their values.
    public internal(set) var problems: [JoinProblem] = []

    /// Reads a join from `payload`, which must be exactly one valid JSON value. `subTopic` is the topic without
    /// `realtime:`.
    public init(_ payload: RawSpan, subTopic: RawSpan, maximumBindings: Int) {
        var reader = JoinReader(maximumBindings: maximumBindings)
        do throws(ByteError) {
            try reader.readPayload(payload)
        } catch {
            reader.request.note("payload", "a map")
        }
        self = reader.request
        token = JoinToken(reader)
        assert(!isLegacy || bindings.isEmpty, "a join of the old form lists no bindings")
        assert(bindings.count <= maximumBindings, "a join keeps no more bindings than allowed")
        if isLegacy { bindings = [ChangeBinding(legacy: subTopic)] }
    }

    init() {}

    /// Makes the request for a feed's channel, which no client joins. It has the given bindings and nothing else.
    public init(feed: [BindingParameters]) {
        isLegacy = false
        options[.position] = true
        bindings = feed.enumerated().map { ChangeBinding(feed: $1, id: UInt32($0) + 1) }
    }

    /// Fills in the options that the join does not set from `wider`, the options of the socket.
    public mutating func inherit(_ wider: ExtensionOptions) { options = options.over(wider) }

    /// Messages for the client about options, events or filter values in its join that look like mistakes.
    public var advice: [ClientText] {
        var advice = options.unknown.map(options.complaint)
        for case .success(let parameters) in bindings.lazy.map(\.parameters) {
            advice += parameters.options.unknown.map(options.complaint)
            if let value = parameters.suspectFilterValue {
                advice.append(
                    ClientText(
                        .suspectValue,
                        "A filter looks for the text \"\(value.prefix(64))\", which reads like more than one condition: several "
                            + "are written and=(a.eq.1,b.gt.2) or or=(a.eq.1,b.gt.2)"))
            }
            if let event = parameters.unknownEvent {
                advice.append(
                    ClientText(
                        .unknownEvent,
                        "Unknown event \(event.prefix(64)) counts as *: there are INSERT, UPDATE, DELETE and *"))
            }
        }
        return advice.reduce(into: []) { told, line in
            if told.count < Self.maximumAdvice, !told.contains(line) { told.append(line) }
        }
    }

    private static let maximumAdvice = 8

    mutating func note(_ key: StaticString, _ expected: StaticString) {
        problems.append(JoinProblem(key: key, expected: expected))
    }
}

/// Member of a join with an invalid value, as text for the log: `config.private: unable to parse, expected boolean`.
public struct JoinProblem: Sendable, CustomStringConvertible {
    let key: StaticString
    let expected: StaticString

    public var description: String { "\(key): unable to parse, expected \(expected)" }
}

/// Token from which the hub takes a channel's claims.
public enum JoinToken: Sendable, Hashable {
    /// The key or token with which the client opened its socket.
    case ofSocket
    case given(String)

    /// Chooses the token. `user_token`, the older name, takes precedence over `access_token`. If the client sent an API
    /// key instead of a user's token, the channel uses the socket's token.
    init(_ reader: borrowing JoinReader) {
        let first = reader.hasAccessToken ? reader.accessToken : reader.userToken
        if let first, first.utf8.starts(with: "sb_".utf8) {
            self = .ofSocket
        } else if let token = reader.userToken ?? reader.accessToken {
            self = .given(token)
        } else {
            self = .ofSocket
        }
    }
}

/// Reader that goes through the payload once.
struct JoinReader: ~Copyable {
    var request = JoinRequest()
    var userToken: String?
    var accessToken: String?
    /// True if `access_token` is present and not null, even if it is not a string.
    var hasAccessToken = false
    let maximumBindings: Int

    init(maximumBindings: Int) { self.maximumBindings = maximumBindings }

    mutating func readPayload(_ payload: RawSpan) throws(ByteError) {
        var scanner = JSONScanner(payload, maximumDepth: JSONScanner.deepest)
        let token = try scanner.next()
        guard token == .beginObject else { return request.note("payload", "a map") }
        while try scanner.next() == .name {
            if scanner.equals("config") {
                try readConfig(&scanner, payload)
            } else if scanner.equals("access_token") {
                try readAccessToken(&scanner)
            } else if scanner.equals("user_token") {
                userToken = try text("user_token", &scanner)
            } else {
                try scanner.skip(try scanner.next())
            }
        }
    }

    private mutating func readAccessToken(_ scanner: inout JSONScanner) throws(ByteError) {
        let token = try scanner.next()
        hasAccessToken = token != .null
        accessToken = try text("access_token", token, &scanner)
    }

    // MARK: config

    private mutating func readConfig(_ scanner: inout JSONScanner, _ payload: RawSpan) throws(ByteError) {
        request.isLegacy = false
        guard try entersObject("config", &scanner) else { return }
        while try scanner.next() == .name {
            if scanner.equals("broadcast") {
                try readBroadcast(&scanner, payload)
            } else if scanner.equals("presence") {
                try readPresence(&scanner)
            } else if scanner.equals("postgres_changes") {
                try readBindings(&scanner, payload)
            } else if scanner.equals("tidewire") {
                let own = try readExtensions("config.tidewire", &scanner)
                request.options = own.over(request.options)
            } else if scanner.equals("private") {
                request.isPrivate = try boolean("config.private", &scanner)
            } else {
                try scanner.skip(try scanner.next())
            }
        }
    }

    private mutating func readExtensions(
        _ key: StaticString, _ scanner: inout JSONScanner
    ) throws(ByteError) -> ExtensionOptions {
        var options = ExtensionOptions()
        guard try entersObject(key, &scanner) else { return options }
        while try scanner.next() == .name {
            if scanner.equals("resume") {
                request.resumption = try ResumeDemand(try scanner.next(), &scanner)
            } else {
                try options.readMember(&scanner)
            }
        }
        return options
    }

    private mutating func readBroadcast(_ scanner: inout JSONScanner, _ payload: RawSpan) throws(ByteError) {
        guard try entersObject("config.broadcast", &scanner) else { return }
        while try scanner.next() == .name {
            if scanner.equals("ack") {
                request.acknowledgesBroadcasts = try boolean("config.broadcast.ack", &scanner)
            } else if scanner.equals("self") {
                request.receivesOwnBroadcasts = try boolean("config.broadcast.self", &scanner)
            } else if scanner.equals("replication_ready") {
                try readReplicationReady(&scanner)
            } else if scanner.equals("replay") {
                request.replay = ReplayDemand(payload.extracting(try value(&scanner)))
            } else if scanner.equals("tidewire") {
                // Options in `config.tidewire` count before these, whichever of the two members is first.
                let wider = try readExtensions("config.broadcast.tidewire", &scanner)
                request.options = request.options.over(wider)
            } else {
                try scanner.skip(try scanner.next())
            }
        }
    }

    /// Reads `replication_ready`. Every value except false and null counts as true, unlike for other booleans of a
    /// join.
    private mutating func readReplicationReady(_ scanner: inout JSONScanner) throws(ByteError) {
        let token = try scanner.next()
        request.wantsReplicationReady = token != .null && token != .bool(false)
        _ = try boolean("config.broadcast.replication_ready", token, &scanner)
    }

    private mutating func readPresence(_ scanner: inout JSONScanner) throws(ByteError) {
        guard try entersObject("config.presence", &scanner) else { return }
        while try scanner.next() == .name {
            if scanner.equals("enabled") {
                request.enablesPresence = try boolean("config.presence.enabled", &scanner)
            } else if scanner.equals("key") {
                try readPresenceKey(&scanner)
            } else {
                try scanner.skip(try scanner.next())
            }
        }
    }

    private mutating func readPresenceKey(_ scanner: inout JSONScanner) throws(ByteError) {
        let token = try scanner.next()
        switch token {
        case .string: request.presenceKey = scanner.tokenBytes.isEmpty ? nil : scanner.text
        case .number: request.presenceKey = scanner.tokenBytes.text
        default:
            request.presenceKey = nil
            if token != .null { request.note("config.presence.key", "string") }
            try scanner.skip(token)
        }
    }

    // MARK: postgres_changes

    /// Reads the bindings. An element that is neither an object nor null makes the list invalid. An invalid list counts
    /// as empty.
    private mutating func readBindings(_ scanner: inout JSONScanner, _ payload: RawSpan) throws(ByteError) {
        (request.bindings, request.hasTooManyBindings) = ([], false)
        let token = try scanner.next()
        if token == .null { return }
        guard token == .beginArray else {
            request.note("config.postgres_changes", "an array of maps")
            return try scanner.skip(token)
        }
        var isValid = true
        while true {
            let token = try scanner.next()
            if token == .endArray { break }
            if token == .beginObject {
                try readBinding(&scanner, payload)
            } else {
                isValid = isValid && token == .null
                try scanner.skip(token)
            }
        }
        if !isValid {
            request.bindings = []
            request.note("config.postgres_changes", "an array of maps")
        }
    }

    private mutating func readBinding(_ scanner: inout JSONScanner, _ payload: RawSpan) throws(ByteError) {
        let start = scanner.offset - 1
        let first = payload.byte(start)
        assert(first == UInt8(ascii: "{"), "a binding begins with the brace that was read last")
        try scanner.skip(.beginObject)
        guard request.bindings.count < maximumBindings else { return request.hasTooManyBindings = true }
        request.bindings.append(try ChangeBinding(payload.extracting(start..<scanner.offset)))
    }

    // MARK: Values

    /// True if an object begins at the next token. Null means that the member is absent. Any other value is recorded as
    /// a problem and skipped.
    private mutating func entersObject(_ key: StaticString, _ scanner: inout JSONScanner) throws(ByteError) -> Bool {
        let token = try scanner.next()
        if token == .beginObject { return true }
        if token != .null { request.note(key, "a map") }
        try scanner.skip(token)
        return false
    }

    private func value(_ scanner: inout JSONScanner) throws(ByteError) -> Range<Int> {
        let token = try scanner.next()
        let start = scanner.start(of: token)
        try scanner.skip(token)
        return start..<scanner.offset
    }

    /// Reads a boolean, or a string that contains one in upper or lower case. Any other value is invalid and means
    /// false.
    private mutating func boolean(_ key: StaticString, _ scanner: inout JSONScanner) throws(ByteError) -> Bool {
        try boolean(key, try scanner.next(), &scanner)
    }

    private mutating func boolean(
        _ key: StaticString, _ token: JSONToken, _ scanner: inout JSONScanner
    ) throws(ByteError) -> Bool {
        switch token {
        case .bool(let value): return value
        case .null: return false
        case .string:
            let text = scanner.tokenBytes.byteCount <= 5 ? scanner.text.lowercased() : ""
            if text == "true" || text == "false" { return text == "true" }
        default: try scanner.skip(token)
        }
        request.note(key, "boolean")
        return false
    }

    private mutating func text(_ key: StaticString, _ scanner: inout JSONScanner) throws(ByteError) -> String? {
        try text(key, try scanner.next(), &scanner)
    }

    private mutating func text(
        _ key: StaticString, _ token: JSONToken, _ scanner: inout JSONScanner
    ) throws(ByteError) -> String? {
        if token == .string { return scanner.text }
        if token != .null { request.note(key, "string") }
        try scanner.skip(token)
        return nil
    }
}
