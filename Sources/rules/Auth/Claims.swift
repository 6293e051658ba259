import Bytes

/// What a good token says about its holder. The bytes are shared by everyone who came with the same token.
public struct Claims: Sendable {
    /// Later than any token means: what has no end, or one beyond the calendar, ends here (the last second of 9999).
    public static let latestExpiry: Int64 = 253_402_300_799

    /// Unix seconds.
    public let expiry: Int64

    let digest: TokenDigest
    /// The claims as they were sent, then role and subject with their escapes undone.
    private let storage: [UInt8]
    private let jsonCount: UInt32
    private let roleCount: UInt32

    init(json: [UInt8], role: [UInt8], subject: [UInt8], expiry: Int64, digest: TokenDigest) {
        storage = json + role + subject
        jsonCount = UInt32(json.count)
        roleCount = UInt32(role.count)
        self.expiry = min(expiry, Self.latestExpiry)
        self.digest = digest
    }

    /// All claims as the token had them: one JSON object.
    public var json: RawSpan {
        @_lifetime(borrow self)
        get { bytes.extracting(0..<Int(jsonCount)) }
    }

    /// The database role; never empty.
    public var role: RawSpan {
        @_lifetime(borrow self)
        get { bytes.extracting(Int(jsonCount)..<Int(jsonCount) + Int(roleCount)) }
    }

    /// `sub`, which is the user's id; empty when there is none.
    public var subject: RawSpan {
        @_lifetime(borrow self)
        get { bytes.extracting(Int(jsonCount) + Int(roleCount)..<storage.count) }
    }

    /// The login's session, of a user of Supabase Auth; nil when there is none.
    public var sessionID: String? {
        var scanner = JSONScanner(json, maximumDepth: JSONScanner.deepest)
        do throws(ByteError) {
            guard try scanner.next() == .beginObject else { return nil }
            var found: String?
            while try scanner.next() == .name {
                let isSession = scanner.equals("session_id")
                let value = try scanner.next()
                if isSession { found = if value == .string { scanner.text } else { nil } }
                try scanner.skip(value)
            }
            return found?.isEmpty == true ? nil : found
        } catch {
            return nil
        }
    }

    private var bytes: RawSpan {
        @_lifetime(borrow self)
        get {
            // SAFETY: any byte is a valid UInt8, and the storage lives as long as the borrow of `self`.
            let bytes = unsafe storage.span.bytes
            return unsafe _overrideLifetime(bytes, borrowing: self)
        }
    }

    /// Whether they came from this very token, so that one that is sent again need not be looked at.
    public func areFrom(_ token: RawSpan) -> Bool {
        TokenDigest(of: token) == digest
    }

    /// The keys do not change, so time is all that a token once found good can fail by.
    public func check(at now: Int64) throws(TokenError) {
        guard expiry > now else { throw .expired(secondsAgo: now - expiry) }
    }
}
