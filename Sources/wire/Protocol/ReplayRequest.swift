import Bytes

/// What a join says of broadcasts from the past (`config.broadcast.replay`).
public enum ReplayDemand: Sendable, Hashable {
    /// The key is not there.
    case none
    /// It is there and is no object: ignored on a private channel, refused like the others on a public one.
    case ignored
    /// Refused with `ReplayDemand.invalidReason`.
    case invalid
    case since(ReplayRequest)

    public static let invalidReason: StaticString = "UnableToReplayMessages: Replay params are not valid"
    public static let publicReason: StaticString = "UnableToReplayMessages: Replay is not allowed for public channels"

    /// Whether the key is there at all, which a public channel is refused for.
    public var isThere: Bool { self != .none }

    /// `json` is one checked value.
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

/// Messages since a moment, the newest so many of them.
public struct ReplayRequest: Sendable, Hashable {
    /// Milliseconds since 1970.
    public let since: Int64
    /// As the client wrote it; nil when it did not.
    public let limit: Int64?

    /// What the reference takes for a moment: the years 1 to 9999.
    static let plausibleSince: ClosedRange<Int64> = -62_135_596_800_000...253_402_300_799_999

    /// At least one and at most `maximum`, which is also meant where none was named.
    public func count(maximum: Int) -> Int {
        guard let limit else { return maximum }
        return Int(min(max(limit, 1), Int64(max(maximum, 1))))
    }
}

/// Beyond the reference: from where in the log a client goes on (`tidewire.resume`), as the text that it was told.
public enum ResumeDemand: Sendable, Hashable {
    case none
    /// No text, or one that no position has.
    case invalid
    case from(String)

    /// Sixteen digits, a point and a number of 64 bits.
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

/// The members that it knows.
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

    /// Nil when it is no object.
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
