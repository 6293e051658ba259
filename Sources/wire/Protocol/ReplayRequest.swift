import Bytes

/// Request for old broadcasts in a join (`config.broadcast.replay`).
public enum ReplayDemand: Sendable, Hashable {
    /// The key `replay` is absent.
    case none
    /// The value of the key `replay` is not an object. The hub ignores it on a private channel. On a public channel it
    /// refuses the join, as for any other value.
    case ignored
    /// The object is not a valid request. The hub refuses the join with `ReplayDemand.invalidReason`.
    case invalid
    case since(ReplayRequest)

    public static let invalidReason: StaticString = "UnableToReplayMessages: Replay params are not valid"
    public static let publicReason: StaticString = "UnableToReplayMessages: Replay is not allowed for public channels"

    /// True if the key `replay` is present, with any value. The hub then refuses a public channel, unless the project
    /// allows replay in public channels.
    public var isThere: Bool { self != .none }

    /// Reads the request from `json`, which must be exactly one valid JSON value.
    init(_ json: RawSpan) {
        guard let members = ReplayMembers(json) else {
            self = .ignored
            return
        }
        guard case .number(let since) = members.since, members.limit != .other,
            ReplayRequest.plausibleSince.contains(since)
        else {
            self = .invalid
            return
        }
        self = .since(ReplayRequest(since: since, limit: members.limit.number))
    }
}

/// Request for the newest broadcasts since a moment, up to a limit.
public struct ReplayRequest: Sendable, Hashable {
    /// Moment since which broadcasts are requested, in milliseconds since 1970.
    public let since: Int64
    /// Number of broadcasts that the client asked for; nil if it gave none.
    public let limit: Int64?

    /// Moments that the reference server (Supabase Realtime) accepts, in milliseconds since 1970: the years 1 to 9999.
    static let plausibleSince: ClosedRange<Int64> = -62_135_596_800_000...253_402_300_799_999

    /// Returns the number of broadcasts to send: the client's limit, but at least one and at most `maximum`. Without a
    /// limit returns `maximum`.
    public func count(maximum: Int) -> Int {
        guard let limit else { return maximum }
        return Int(min(max(limit, 1), Int64(max(maximum, 1))))
    }
}

/// Request to resume from a log position (`tidewire.resume`). The position is text that the client received earlier.
/// Goes beyond Supabase's protocol.
public enum ResumeDemand: Sendable, Hashable {
    case none
    /// The value is neither null nor a string, or the string is longer than any position.
    case invalid
    case from(String)

    /// Length in bytes of the longest position: sixteen digits, a point, and a number of 64 bits.
    private static let longestPosition = 37

    init(_ token: JSONToken, _ scanner: inout JSONScanner) throws(ByteError) {
        switch token {
        case .null: self = .none
        case .string where scanner.tokenBytes.byteCount <= Self.longestPosition: self = .from(scanner.text)
        default:
            try scanner.skip(token)
            self = .invalid
        }
    }
}

/// Members of a replay request. Members unknown to the hub are skipped.
private struct ReplayMembers {
    enum Member: Equatable {
        case absent
        case number(Int64)
        case other

        var number: Int64? {
            if case .number(let number) = self { number } else { nil }
        }
    }

    var since = Member.absent
    var limit = Member.absent

    /// Reads the members of a replay request; nil if the JSON is not an object.
    init?(_ json: RawSpan) {
        do throws(MessageError) {
            var scanner = JSONScanner(json, maximumDepth: JSONScanner.deepest)
            guard try scanner.token() == .beginObject else { return nil }
            while try scanner.token() == .name { try read(&scanner) }
        } catch {
            return nil
        }
    }

    private mutating func read(_ scanner: inout JSONScanner) throws(MessageError) {
        if scanner.equals("since") {
            since = try Self.member(&scanner)
        } else if scanner.equals("limit") {
            limit = try Self.member(&scanner)
        } else {
            try scanner.pass(try scanner.token())
        }
    }

    private static func member(_ scanner: inout JSONScanner) throws(MessageError) -> Member {
        let token = try scanner.token()
        if token == .number, let number = scanner.integer(Int64.self) { return .number(number) }
        try scanner.pass(token)
        return .other
    }
}
