import Bytes

/// Holder whom a signed token names. It permits nothing: the token may have been refused for its dates or its role.
public struct TokenHolder: Sendable, Hashable {
    /// Claims as they were sent: one JSON object.
    public let json: [UInt8]
    /// Database role; empty if the token has none.
    public let role: [UInt8]
    /// User's id, from `sub`; empty if there is none.
    public let subject: [UInt8]

    init(json: [UInt8], role: [UInt8], subject: [UInt8]) {
        self.json = json
        self.role = role
        self.subject = subject
    }

    public init(_ claims: Claims) {
        self.init(json: claims.json.copied(), role: claims.role.copied(), subject: claims.subject.copied())
    }
}
