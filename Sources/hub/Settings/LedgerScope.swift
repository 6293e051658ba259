/// What the event log keeps of clients' channels.
public enum LedgerScope: String, Sendable, CaseIterable {
    /// As `ranges`, and of each change to whom it was sent and when.
    case full
    /// Who joined what and when it ended; who was refused, and told of a loss.
    case ranges
    /// Only who was refused, and told of a loss.
    case exceptions
    case nothing = "off"
}
