import Bytes

/// Role, subject and claims that a token with a valid signature states. They give no rights, because the token may have
/// been refused for another reason.
public struct TokenHolder: Sendable, Hashable {
    /// Claims as they were sent: one JSON object.
    public let json: [UInt8]
    /// Database role; empty if the token has none.
    public let role: [UInt8]
    /// User's id, from the claim `sub`; empty if there is none.
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
