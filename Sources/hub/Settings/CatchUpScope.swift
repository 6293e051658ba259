/// Clients that the hub recognizes when they come back after a cut, and that then resume.
public enum CatchUpScope: String, Sendable, CaseIterable {
    /// Clients with a login's session in the token, or with a name in the address.
    case sessions = "on"
    /// Only clients with a name in the address.
    case named = "client_id"
    case nobody = "off"
}
