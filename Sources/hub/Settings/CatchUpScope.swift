/// Clients that the hub recognizes when they reconnect, and then resumes without being asked.
public enum CatchUpScope: String, Sendable, CaseIterable {
    /// Clients with a session in their token, or with a `client_id` in their address.
    case sessions = "on"
    /// Clients with a `client_id` in their address, and no others.
    case named = "client_id"
    /// No clients.
    case nobody = "off"
}
