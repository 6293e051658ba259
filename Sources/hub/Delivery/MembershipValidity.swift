import Catalog
import Change

/// Record of which transactions a filled membership set is valid for.
struct MembershipValidity {
    /// Validity of a set for the transaction that the loop is reading.
    enum Measure {
        /// The set contains exactly the members at the transaction.
        case exact
        /// The transaction was committed before the log followed the membership's table. PostgreSQL decides, as for
        /// tables that are not followed.
        case notYetFollowed
        /// The set contains the transaction or later ones already, and the members at the transaction are no longer
        /// known.
        case tooNew
    }

    /// WAL position from which the log has every change of the membership's table.
    let followedSince: UInt64
    /// WAL positions at which the hub can no longer find out the members.
    private let unknownPast: UnknownPast
    /// Transactions in PostgreSQL's answer that filled the set; nil once the loop has read all of them.
    private(set) var seen: SeenTransactions?
    private(set) var measure = Measure.exact
    /// True if the hub removed the effects of later transactions from the answer, or found that it could not.
    private var wasUnwound = false

    init(followedSince: UInt64, unknownPast: UnknownPast) {
        self.followedSince = followedSince
        self.unknownPast = unknownPast
    }

    /// Forgets the transactions of the answer that filled the set.
    mutating func forget() { self = MembershipValidity(followedSince: followedSince, unknownPast: unknownPast) }

    /// Records that the set was filled by an answer that contains the transactions.
    mutating func filled(_ seen: SeenTransactions) { self.seen = seen }

    /// Records that the effects of later transactions were removed from the answer, or could not be.
    mutating func unwound() { wasUnwound = true }

    /// True if the set contains later transactions and says nothing about the log's next ones.
    var isOfLaterOnly: Bool { !wasUnwound && seen.map { $0.end > followedSince } ?? false }
    /// True if the set may contain transactions that the loop has not reached in the log.
    var mayBeAhead: Bool { seen != nil }

    /// Begins a transaction of the log. Returns true if the loop has now read everything that the set was filled with.
    /// Until then the set may be too new to say who was a member at this transaction.
    ///
    /// - Parameter isOwed: true if some channels joined before the set was filled, and must receive these transactions.
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

    /// True if PostgreSQL's answer, with which the set was filled, contains the transaction already.
    func contains(xid: UInt32, at lsn: UInt64) -> Bool { seen.map { $0.has(xid, at: lsn) } ?? false }

    /// Records that the loop has read the log up to a WAL position.
    mutating func pass(_ lsn: UInt64) { if seen?.isBehind(lsn) == true { seen = nil } }
}
