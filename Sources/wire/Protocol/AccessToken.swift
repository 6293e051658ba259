import Bytes

/// What an `access_token` message brings.
public enum AccessToken: Sendable, Hashable {
    case text([UInt8])
    /// The client has no token any more, which changes nothing here.
    case null
    /// No such member, or something else than a text in it.
    case other

    /// `payload` is one JSON value that has been checked.
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
