/// Cause for which it is unknown if a client was told of a change, or would have been.
public enum UnknownCause: String, Sendable, Hashable, CaseIterable {
    /// The log does not have the catalog of that time, or not the rights of the client's role.
    case catalog
    /// Policies read claims whose values are not kept, or masked.
    case claims
    /// A filter that only PostgreSQL can decide, or whose values a bundle has masked.
    case filters
    /// Memberships of that time cannot be computed from the log.
    case memberships
    /// The change lacks a column that policies read, or a bundle has masked it.
    case columns
    /// Only PostgreSQL can decide the policies, and it knows only what holds now.
    case onlyPostgres = "only_postgres"
    /// PostgreSQL would have to judge too many rows.
    case limit
    /// The ledger does not say how far the client had come: the hub was killed, or notes are missing.
    case ledger
    /// The client caught up while its rights changed.
    case caughtUp = "caught_up"
    /// The delivery is recorded, but filters and policies of then do not explain it: perhaps a notice that the row left the
    /// client's view.
    case unexplained
}
