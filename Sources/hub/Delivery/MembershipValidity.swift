import Catalog
import Change

/// Validity of the rows that filled a membership set, for the transactions that the log comes to.
struct MembershipValidity {
    /// Validity of the set for the current transaction.
    enum Measure {
        case exact
        /// The transaction was committed before the log had all of the membership's table. PostgreSQL decides, as for
        /// tables that are not followed.
        case notYetFollowed
        /// The transaction is older than the rows that filled the set, and the members at that time are no longer
        /// known.
        case tooNew
    }

    /// Position from which the log has every change of the table.
    let followedSince: UInt64
    /// Positions at which the members can no longer be determined.
    private let unknownPast: UnknownPast
    /// Transactions that PostgreSQL had seen when it filled the set; nil once the log has passed all of them.
    private(set) var seen: SeenTransactions?
    private(set) var measure = Measure.exact
    /// True if the transactions that the log had ahead were taken out of the answer, or it was found that this is
    /// impossible.
    private var wasUnwound = false

    init(followedSince: UInt64, unknownPast: UnknownPast) {
        self.followedSince = followedSince
        self.unknownPast = unknownPast
    }

    /// Forgets the rows that filled the set.
    mutating func forget() { self = MembershipValidity(followedSince: followedSince, unknownPast: unknownPast) }

    /// Notes that the set was filled with rows that contain the transactions.
    mutating func filled(_ seen: SeenTransactions) { self.seen = seen }

    /// Notes that the rows were unwound, or cannot be.
    mutating func unwound() { wasUnwound = true }

    /// True if the rows say nothing about the log's next transactions.
    var isOfLaterOnly: Bool { !wasUnwound && seen.map { $0.end > followedSince } ?? false }
    /// True if the log may still come to transactions that the set was filled with.
    var mayBeAhead: Bool { seen != nil }

    /// Begins a transaction. Returns true if the log has passed everything that filled the set. The rows may be newer than
    /// this transaction, and do not say who was a member at that time.
    ///
    /// - Parameter isOwed: true if channels are promised the transactions that filled the set.
    mutating func begin(xid: UInt32, at lsn: UInt64, isOwed: Bool) -> Bool {
        guard let seen else { return false }
        measure = .exact
        if !seen.isBehind(lsn), seen.contains(xid) {
            let wasNeverFollowed = lsn < followedSince && !unknownPast.contains(LSN(lsn))
            measure = wasNeverFollowed && isOwed ? .notYetFollowed : .tooNew
        }
        guard seen.isBehind(lsn) else { return false }
        self.seen = nil
        return true
    }

    /// True if the rows contain the transaction already.
    func contains(xid: UInt32, at lsn: UInt64) -> Bool { seen.map { $0.has(xid, at: lsn) } ?? false }

    /// Notes that the log has come to a position.
    mutating func pass(_ lsn: UInt64) { if seen?.isBehind(lsn) == true { seen = nil } }
}
