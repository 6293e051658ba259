import Bytes

/// Meaning of an opaque API key (`sb_publishable_…`, `sb_secret_…`). The hub itself replaces the key, as a gateway in
/// front of the reference does.
public enum OpaqueKey: Sendable, Equatable {
    /// The hub makes claims for the key: the role, and no end.
    case role(String)
    /// The hub treats the key as if the client had sent this token.
    case token(String)

    /// Creates a meaning. A text with a dot is a token, because no role that is granted to clients has a dot.
    public init(_ text: String) {
        self = text.utf8.contains(UInt8(ascii: ".")) ? .token(text) : .role(text)
    }

    public static let prefix: StaticString = "sb_"

    /// True if a text is an opaque key, known or not. The hub ignores an opaque key as a channel's token.
    public static func isOne(_ text: RawSpan) -> Bool {
        let length = prefix.utf8CodeUnitCount
        return text.byteCount >= length && text.extracting(0..<length).equals(prefix)
    }
}
