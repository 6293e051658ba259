import Bytes

/// Claims of a valid token. All clients that sent the same token share the bytes.
public struct Claims: Sendable {
    /// Latest possible expiry in Unix seconds, the last second of the year 9999. A later expiry, or none, is replaced
    /// by it.
    public static let latestExpiry: Int64 = 253_402_300_799

    /// Expiry of the token in Unix seconds.
    public let expiry: Int64

    let digest: TokenDigest
    /// Claims as they were sent, followed by the role and the subject without escapes.
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

    /// All claims as in the token: one JSON object.
    public var json: RawSpan {
        @_lifetime(borrow self)
        get { bytes.extracting(0..<Int(jsonCount)) }
    }

    /// Database role of the token; never empty.
    public var role: RawSpan {
        @_lifetime(borrow self)
        get { bytes.extracting(Int(jsonCount)..<Int(jsonCount) + Int(roleCount)) }
    }

    /// User's id, from the claim `sub`; empty if there is none.
    public var subject: RawSpan {
        @_lifetime(borrow self)
        get { bytes.extracting(Int(jsonCount) + Int(roleCount)..<storage.count) }
    }

    /// Id of the user's login session, from Supabase Auth's claim `session_id`; nil if there is none.
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

    /// True if these claims were read from the same token, which then needs no second verification.
    public func areFrom(_ token: RawSpan) -> Bool {
        TokenDigest(of: token) == digest
    }

    /// Throws if the token has expired at `now`, in Unix seconds. Keys do not change, so time alone can make a valid
    /// token invalid.
    public func check(at now: Int64) throws(TokenError) {
        guard expiry > now else { throw .expired(secondsAgo: now - expiry) }
    }
}
