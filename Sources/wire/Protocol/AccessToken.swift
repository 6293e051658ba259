import Bytes

/// Token that an `access_token` message carries.
public enum AccessToken: Sendable, Hashable {
    case text([UInt8])
    /// The member is null: the client no longer has a token. The hub keeps using the channel's present token.
    case null
    /// The payload has no member `access_token`, or the member is neither a string nor null.
    case other

    /// Reads the token from `payload`, which must be exactly one valid JSON value.
    public init(_ payload: RawSpan) {
        self = .other
        do throws(ByteError) {
            var scanner = JSONScanner(payload, maximumDepth: JSONScanner.deepest)
            guard try scanner.next() == .beginObject else { return }
            while try scanner.next() == .name {
                let isToken = scanner.equals("access_token")
                let token = try scanner.next()
                if isToken {
                    switch token {
                    case .string: self = .text(Array(scanner.text.utf8))
                    case .null: self = .null
                    default: self = .other
                    }
                }
                try scanner.skip(token)
            }
        } catch {
            self = .other
        }
    }
}
