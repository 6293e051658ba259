import Bytes

/// What an opaque API key (`sb_publishable_…`, `sb_secret_…`) stands for: the hub does itself what a gateway does before
/// the reference.
public enum OpaqueKey: Sendable, Equatable {
    /// Claims are made for it: the role and no end.
    case role(String)
    /// It is taken as if this token had been sent.
    case token(String)

    /// A token has two dots, and no role that is granted to clients has any.
    public init(_ text: String) {
        self = text.utf8.contains(UInt8(ascii: ".")) ? .token(text) : .role(text)
    }

    public static let prefix: StaticString = "sb_"

    /// Whether a text is such a key, known or not. As a channel's token it is passed over.
    public static func isOne(_ text: RawSpan) -> Bool {
        let length = prefix.utf8CodeUnitCount
        return text.byteCount >= length && text.extracting(0..<length).equals(prefix)
    }
}
