import Catalog

/// Results of delivery besides frames, on which the loop acts. A report always contains all of them, so that none is
/// forgotten.
public struct DeliveryReport {
    /// Membership sets that changed or are being filled again.
    public let changedSets: [MembershipSet]
    /// Membership sets for which the loop must ask PostgreSQL.
    public let unfilledSets: [MembershipSet]
    /// Tables whose rows wait longer than usual until PostgreSQL shows a transaction, or that the loop passed without
    /// waiting, because nobody listens to them here.
    public let held: [HeldTable]
    /// True once each time that the wait for the catalog reaches the longest time for which clients may be made to
    /// wait.
    public let isTiredOfWaiting: Bool
    /// Policies on which the table itself contradicts the hub's decision.
    public let contradicted: [PolicyBinding]
    /// Columns that could not be computed for some row, by table.
    public let uncomputed: [UInt32: Set<String>]
    public let losses: DeliveryLosses
    public let findings: LogFindings
    /// Listeners of feeds that received changes.
    public let fed: [UInt32]
}

/// Findings of a pipeline in the log since its last report, of which the loop tells clients.
public struct LogFindings {
    /// Tables that lost all rows at once, with the last offset at which the log says so.
    public private(set) var truncated: [UInt32: UInt64] = [:]
    /// Tables with changes whose values were removed from the log, with the offset of the last such change.
    public private(set) var forgotten: [UInt32: UInt64] = [:]
    /// True if messages to topics were among the changes with removed values.
    public private(set) var hasForgottenMessages = false
    /// Gaps in history, described in words.
    public private(set) var gaps: [String] = []

    mutating func noteGap(_ reason: String) { gaps.append(reason) }
    mutating func noteTruncation(of table: UInt32, at offset: UInt64) { truncated[table] = offset }
    mutating func noteForgotten(_ table: UInt32, at offset: UInt64) { forgotten[table] = offset }
    mutating func noteForgottenMessage() { hasForgottenMessages = true }
}

/// Table whose policies or privileges may have changed before a transaction that PostgreSQL does not show yet.
public struct HeldTable: Sendable, Hashable {
    public let table: UInt32
    public let xid: UInt32
}

/// Listeners that missed changes, by reason.
public struct DeliveryLosses {
    /// Listeners that got an update without its unchanged values, because the log does not have those.
    public let lacking: [UInt32]
    /// Listeners for which more waits for answers than is allowed.
    public let overfull: [UInt32]
    /// Listeners that may have missed a change, because the hub could not find out if the change was for them.
    public let unanswered: [UInt32]
    /// Tables whose deletes were not judged for a listener, because the log does not have the deleted rows, or does not
    /// have them for certain.
    public let unknownRows: [UInt32: Set<UInt32>]
    /// Listeners that missed a delete because the log has the deleted row without a value that their filter or policy
    /// reads.
    public let incompleteRows: [UInt32]
    /// Accounts whose filters were not tried, because that would have taken more work than the allowance.
    public let stopped: [UInt32]
    /// Listeners that were left out together with the accounts in `stopped`.
    public let skipped: [UInt32]
}
