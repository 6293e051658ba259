/// Clients that the hub recognizes when they reconnect, and then resumes without being asked.
public enum CatchUpScope: String, Sendable, CaseIterable {
    /// Clients with a session in their token, or with a `client_id` in their address.
    case sessions = "on"
    /// Only clients with a `client_id` in their address.
    case named = "client_id"
    /// No clients.
    case nobody = "off"
}
