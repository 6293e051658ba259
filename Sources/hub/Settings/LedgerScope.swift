/// Scope of what the event log records about clients' channels.
public enum LedgerScope: String, Sendable, CaseIterable {
    /// Everything in `ranges`, and for each change the clients to which it was sent, with the time.
    case full
    /// Joins with their ends, refused clients, and losses that clients were told about.
    case ranges
    /// Refused clients, and losses that clients were told about.
    case exceptions
    /// Empty scope: the log records nothing about channels.
    case nothing = "off"
}
