import Catalog

/// Results of delivery that the loop must act on, besides frames. Every report contains all of them, so that the loop
/// forgets none.
public struct DeliveryReport {
    /// Membership sets that changed or are being filled again.
    public let changedSets: [MembershipSet]
    /// Membership sets that the loop must ask PostgreSQL to fill.
    public let unfilledSets: [MembershipSet]
    /// Tables with a transaction that PostgreSQL takes longer than usual to show, and tables that the loop passed
    /// without waiting because none of its channels listens to them.
    public let held: [HeldTable]
    /// True if clients have just waited for the catalog for the maximum time. Each wait reports this once.
    public let isTiredOfWaiting: Bool
    /// Policies on which PostgreSQL's decision contradicted the hub's.
    public let contradicted: [PolicyBinding]
    /// Columns, by table, that PostgreSQL could not compute for some row.
    public let uncomputed: [UInt32: Set<String>]
    public let losses: DeliveryLosses
    public let findings: LogFindings
    /// Listeners of feeds that received changes.
    public let fed: [UInt32]
}

/// Events that a pipeline found in the log since its last report. The loop tells clients about them.
public struct LogFindings {
    /// Truncated tables (their OIDs), each with the log offset of its last truncation.
    public private(set) var truncated: [UInt32: UInt64] = [:]
    /// Tables (their OIDs) with changes whose values were removed from the log, each with the offset of the last such
    /// change.
    public private(set) var forgotten: [UInt32: UInt64] = [:]
    /// True if a message to a topic was among the log's changes whose values were removed.
    public private(set) var hasForgottenMessages = false
    /// Descriptions of the gaps in history, for clients.
    public private(set) var gaps: [String] = []

    mutating func noteGap(_ reason: String) { gaps.append(reason) }
    mutating func noteTruncation(of table: UInt32, at offset: UInt64) { truncated[table] = offset }
    mutating func noteForgotten(_ table: UInt32, at offset: UInt64) { forgotten[table] = offset }
    mutating func noteForgottenMessage() { hasForgottenMessages = true }
}

/// Table whose rows wait for one transaction, because its policies or privileges may have changed before that
/// transaction and PostgreSQL does not show it yet.
public struct HeldTable: Sendable, Hashable {
    public let table: UInt32
    public let xid: UInt32
}

/// Listeners that missed changes, by reason.
public struct DeliveryLosses {
    /// Listeners that received an update without its unchanged values, because the log does not have these values.
    public let lacking: [UInt32]
    /// Listeners for whom more deliveries wait than the limit allows.
    public let overfull: [UInt32]
    /// Listeners that may have missed a change, because the hub could not find out if it was for them.
    public let unanswered: [UInt32]
    /// Tables, by listener, with deletes that could not be matched, because the log does not have the deleted rows or
    /// may lack changes of them.
    public let unknownRows: [UInt32: Set<UInt32>]
    /// Listeners that missed a delete because the log has the deleted row without a value that their filter or policy
    /// reads.
    public let incompleteRows: [UInt32]
    /// Accounts whose filters the hub stopped evaluating, because they would have taken more work than the allowance.
    public let stopped: [UInt32]
    /// Listeners that missed changes because the account of their filters is in `stopped`.
    public let skipped: [UInt32]
}
