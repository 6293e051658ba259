/// Scope of the event log's record of clients' channels.
public enum LedgerScope: String, Sendable, CaseIterable {
    /// Like `ranges`, and for each change the clients to which it was sent and when.
    case full
    /// Joins and when they ended; clients that were refused, and clients that were told of a loss.
    case ranges
    /// Clients that were refused, and clients that were told of a loss.
    case exceptions
    case nothing = "off"
}
