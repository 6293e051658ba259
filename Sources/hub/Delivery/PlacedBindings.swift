import Bytes
import Catalog
import Change
import Diagnostics
import EventLog
import Matching
import Policy

/// Bindings of one loop's channels in the form that deliveries use: indexes of filters and policies, and the channel
/// and view of each member (a binding to one table).
struct PlacedBindings: ~Copyable {
    var audience = Audience()
    var views: ViewTable
    /// Index of bindings by the new row of a change, or by the deleted row.
    var index = PredicateIndex(maximumRelations: Limits.maximumCachedRelations, allowance: .ofFilters)
    /// Index of bindings by the old row of an update, for clients that asked for departures: rows that leave their
    /// view.
    var leavingRows = PredicateIndex(
        judging: .old, maximumRelations: Limits.maximumCachedRelations, allowance: .ofFilters)
    var policies = ActivePolicies()
    /// Segments of the log that the bindings need, for a catch-up, which may skip the others; nil at the log's end.
    var needs: SegmentNeeds?

    /// True if, on a table with policies, the hub sends a delete only to clients that could see the row.
    let deletesAreStrict: Bool

    init(deletesAreStrict: Bool, skipsSegments: Bool) {
        self.deletesAreStrict = deletesAreStrict
        views = ViewTable(tellsFormerKeys: !deletesAreStrict)
        needs = skipsSegments ? SegmentNeeds() : nil
    }

    /// Number of bindings whose filters read the row before the change.
    var oldRowReaders = 0

    /// True if some client asked for departures: a delete message for rows that leave its view.
    var wantDepartures: Bool { leavingRows.count > 0 }

    /// True if the segment contains nothing for any binding, so that a catch-up may skip it.
    mutating func areUnconcerned(by segment: SealedSegment) -> Bool { needs?.isUseless(segment) ?? false }

    // MARK: Work on filters

    mutating func fillAllowances(_ now: UInt64) {
        index.refillReserve(now)
        leavingRows.refillReserve(now)
    }

    /// Removes and returns the accounts whose filters exceeded the work allowance.
    mutating func takeStopped() -> Set<UInt32> { Set(index.takeStopped() + leavingRows.takeStopped()) }

    /// Sets the time that `now()` has in policies, and the time of the commit, to which times in filters are relative.
    /// Both are in Unix microseconds.
    mutating func beginMoment(_ now: Int64, committed: Int64) {
        let (moment, committed) = (PostgresMoment.of(now), PostgresMoment.of(committed))
        index.moment = moment
        leavingRows.moment = moment
        index.committed = committed
        leavingRows.committed = committed
    }

    // MARK: Tables

    mutating func declare(table oid: UInt32, columns: [String]) {
        index.declare(table: oid, columns: columns)
        leavingRows.declare(table: oid, columns: columns)
    }

    mutating func forget(table oid: UInt32) {
        index.forget(table: oid)
        leavingRows.forget(table: oid)
    }

    /// Forgets how columns of stored schemas correspond to the tables' current columns, so that the hub determines it
    /// again.
    mutating func forgetRelations() {
        index.forgetRelations()
        leavingRows.forgetRelations()
    }

    mutating func noteRelation(_ fingerprint: UInt64, _ relation: Relation, foreign: Set<Int>) {
        index.noteRelation(fingerprint, relation, foreign: foreign)
        leavingRows.noteRelation(fingerprint, relation, foreign: foreign)
    }

    /// Returns the OID of the table of a member's binding; nil if its view was removed.
    func table(of member: Member) -> UInt32? { views.views[member.view]?.key.table.oid }

    /// True if the hub told the client on subscribing that the table's changes lack whole old rows. If false and a
    /// change lacks one, the table had another replica identity for a while.
    func knowsOfPartialRows(_ member: Member) -> Bool {
        views.views[member.view]?.key.table.identity != .full
    }
}

extension Allowance {
    /// Work allowance of a loop for filters that it evaluates one by one.
    fileprivate static let ofFilters = Allowance(
        ofChange: Limits.filterWorkOfChange, ofAccount: Limits.filterWorkOfConnection, most: Limits.filterWorkReserve,
        perMicrosecond: Limits.filterWorkPerMicrosecond)
}
