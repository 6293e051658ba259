/// Clients that the hub recognizes when they come back after a cut, and that then resume.
public enum CatchUpScope: String, Sendable, CaseIterable {
    /// Clients with a login's session in the token, or with a name in the address.
    case sessions = "on"
    /// Clients with a name in the address, and no others.
    case named = "client_id"
    case nobody = "off"
}
