/// Cause for which it is unknown if a client received a change, or would have received it.
public enum UnknownCause: String, Sendable, Hashable, CaseIterable {
    /// The log does not have the catalog of that time, or lacks the rights of the client's role in it.
    case catalog
    /// Policies read claims whose values the ledger does not keep, or a bundle has masked.
    case claims
    /// Filter that only PostgreSQL can evaluate, or whose values a bundle has masked.
    case filters
    /// Memberships of that time cannot be computed from the log.
    case memberships
    /// The change lacks a column that policies read, or that a filter reads of the row before the change, or a bundle has
    /// masked it.
    case columns
    /// Policies that only PostgreSQL can evaluate, which knows only the present data.
    case onlyPostgres = "only_postgres"
    /// PostgreSQL would have to evaluate more rows than the limit allows.
    case limit
    /// The ledger does not show how much the client received: the hub was killed, or notes are missing.
    case ledger
    /// The client caught up while its rights changed.
    case caughtUp = "caught_up"
    /// The delivery is recorded, but filters and policies at that time do not explain it. It was perhaps a notice that
    /// the row left the client's view.
    case unexplained
}
