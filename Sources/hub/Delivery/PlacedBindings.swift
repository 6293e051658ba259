import Bytes
import Catalog
import Change
import Diagnostics
import EventLog
import Matching
import Policy

/// Bindings of one loop's channels, placed so that changes find them: indexes of filters and policies, and for each
/// member its channel and its view.
struct PlacedBindings: ~Copyable {
    var audience = Audience()
    var views: ViewTable
    /// Index of bindings by the row as a change leaves it, or as it was before a delete.
    var index = PredicateIndex(maximumRelations: Limits.maximumCachedRelations, allowance: .ofFilters)
    /// Index of bindings whose clients want to hear of rows that updates take out of their view.
    var leavingRows = PredicateIndex(
        judging: .old, maximumRelations: Limits.maximumCachedRelations, allowance: .ofFilters)
    var policies = ActivePolicies()
    /// Record of which segments of the log are needed, for a catch-up that may have much to read; nil at the log's end.
    var needs: SegmentNeeds?

    /// True if, on a table with policies, the hub tells a delete only to clients that could see the row.
    let deletesAreStrict: Bool

    init(deletesAreStrict: Bool, skipsSegments: Bool) {
        self.deletesAreStrict = deletesAreStrict
        views = ViewTable(tellsFormerKeys: !deletesAreStrict)
        needs = skipsSegments ? SegmentNeeds() : nil
    }

    /// True if some client wants to hear of rows that leave its view.
    var wantDepartures: Bool { leavingRows.count > 0 }

    /// True if the segment contains nothing for any binding.
    mutating func areUnconcerned(by segment: SealedSegment) -> Bool { needs?.isUseless(segment) ?? false }

    // MARK: Work on filters

    mutating func fillAllowances(_ now: UInt64) {
        index.fillPurse(now)
        leavingRows.fillPurse(now)
    }

    /// Removes and returns the accounts whose filters take more work than the allowance.
    mutating func takeStopped() -> Set<UInt32> { Set(index.takeStopped() + leavingRows.takeStopped()) }

    /// Sets the value of `now()` in filters and policies, in Unix microseconds.
    mutating func beginMoment(_ now: Int64) {
        let moment = PostgresMoment.of(now)
        index.moment = moment
        leavingRows.moment = moment
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

    /// Forgets the meaning of the columns of stored schemas, so that the hub reads it again.
    mutating func forgetRelations() {
        index.forgetRelations()
        leavingRows.forgetRelations()
    }

    mutating func noteRelation(_ fingerprint: UInt64, _ relation: Relation, foreign: Set<Int>) {
        index.noteRelation(fingerprint, relation, foreign: foreign)
        leavingRows.noteRelation(fingerprint, relation, foreign: foreign)
    }

    /// Returns the table of a member's binding; nil if its view is gone.
    func table(of member: Member) -> UInt32? { views.views[member.view]?.key.table.oid }

    /// True if the client was told on subscribing that changes do not keep whole old rows. If not, the table had
    /// another replica identity for a while.
    func knowsOfPartialRows(_ member: Member) -> Bool {
        views.views[member.view]?.key.table.identity != .full
    }
}

extension Allowance {
    /// Work allowance of a loop for filters that are tried one by one.
    fileprivate static let ofFilters = Allowance(
        ofChange: Limits.filterWorkOfChange, ofAccount: Limits.filterWorkOfConnection, most: Limits.filterWorkReserve,
        perMicrosecond: Limits.filterWorkPerMicrosecond)
}
