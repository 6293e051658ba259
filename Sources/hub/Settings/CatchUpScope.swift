/// Who is known again when coming back after a cut, and goes on where it was.
public enum CatchUpScope: String, Sendable, CaseIterable {
    /// Whoever has a login's session in its token, or a name in its address.
    case sessions = "on"
    /// Only who has a name in its address.
    case named = "client_id"
    case nobody = "off"
}
