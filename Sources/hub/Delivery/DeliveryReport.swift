import Catalog

/// What delivery found out beside frames, for its loop to act on: all of it each time, so that nothing is forgotten.
public struct DeliveryReport {
    /// Memberships that are others than they were, or are filled anew.
    public let changedSets: [LiveSet]
    /// Memberships that PostgreSQL is to be asked for.
    public let unfilledSets: [LiveSet]
    /// Tables whose rows wait until PostgreSQL shows a transaction, for longer than usual, or that nobody here waited for.
    public let held: [HeldTable]
    /// The catalog has been waited for as long as clients are made to: once each time that is so.
    public let isTiredOfWaiting: Bool
    /// Policies that their table itself contradicts.
    public let contradicted: [PolicyBinding]
    /// Columns that could not be computed of some row, by table.
    public let uncomputed: [UInt32: Set<String>]
    public let losses: DeliveryLosses
    /// Tables of which all rows are gone at once, and where the log says so last.
    public let truncated: [UInt32: UInt64]
    /// Tables of which changes were met whose values were removed from the log, and where the last of each is.
    public let forgotten: [UInt32: UInt64]
    /// Messages to topics were among them.
    public let hasForgottenMessages: Bool
    /// Holes in history, in words.
    public let gaps: [String]
    /// Listeners that are feeds and were told of changes.
    public let fed: [UInt32]
}

/// Table whose policies or privileges may have changed before a transaction that PostgreSQL does not show yet.
public struct HeldTable: Sendable, Hashable {
    public let table: UInt32
    public let xid: UInt32
}

/// What could not be delivered, by the listeners that miss it.
public struct DeliveryLosses {
    /// They got an update without values that it left unchanged, because the log does not have them.
    public let lacking: [UInt32]
    /// More waits for answers than may.
    public let overfull: [UInt32]
    /// Something may have been for them: it could not be found out.
    public let unanswered: [UInt32]
    /// To try somebody's filter would have taken more than there was for that: whose, by their accounts …
    public let stopped: [UInt32]
    /// … and who was left out with them.
    public let skipped: [UInt32]
}
