import Bytes

/// Meaning of an opaque API key (`sb_publishable_…`, `sb_secret_…`). The hub accepts such keys itself and uses a role
/// or a token in their place. For Supabase Realtime, a gateway in front of it does that.
public enum OpaqueKey: Sendable, Equatable {
    /// The hub makes claims for the key, with this role and without an expiry.
    case role(String)
    /// The hub treats the key like this token.
    case token(String)

    /// Creates the meaning from a configured text. A text with a dot is a token, because the roles of clients have no
    /// dot in their names.
    public init(_ text: String) {
        self = text.utf8.contains(UInt8(ascii: ".")) ? .token(text) : .role(text)
    }

    /// Prefix of all opaque keys.
    public static let prefix: StaticString = "sb_"

    /// True if a text has the form of an opaque key, even if no such key is configured. The hub ignores such a key if a
    /// client sends it as the token of a channel.
    public static func isOne(_ text: RawSpan) -> Bool {
        let length = prefix.utf8CodeUnitCount
        return text.byteCount >= length && text.extracting(0..<length).equals(prefix)
    }
}
