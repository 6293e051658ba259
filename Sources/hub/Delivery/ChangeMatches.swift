import Bytes
import Change
import Diagnostics
import Matching

/// Matches of bindings with the changes of a part of a transaction. The lists are reused for each group of changes.
struct ChangeMatches: ~Copyable {
    /// Bindings that match a change, evaluated on the change as the log stores it.
    private(set) var found = MatchBatch()
    /// Bindings that match a change, evaluated on the row after the hub completed it from the log or by PostgreSQL.
    private var foundWhole = MatchBatch()
    /// Bindings whose clients receive a delete message for rows that leave their view, and whose view held the old row.
    private(set) var departed = MatchBatch()
    /// Bindings as in `departed`, evaluated on the completed row.
    private var departedWhole = MatchBatch()
    /// Bindings as in `departed`, evaluated on an old row that the change lacks and that the hub found elsewhere.
    private var departedByOldRow = MatchBatch()
    /// Members (bindings) of the node that the router is serving. They are copied from the index, so that the index can
    /// be changed meanwhile.
    private(set) var nodeMembers: [UInt32] = []
    /// Members (bindings) that receive the current change, but for which the router must still check if they may see
    /// the old row.
    private(set) var withPast: [UInt32] = []

    // MARK: Matching

    /// Matches the next group of the part's changes with the bindings in the predicate indexes.
    @_lifetime(part: copy part)
    mutating func match(
        _ part: inout TransactionPart, _ bindings: inout PlacedBindings, _ skipped: inout SkippedListeners
    ) throws(ByteError) -> PredicateIndex.Outcome {
        if bindings.wantDepartures {
            var same = part
            _ = try Self.match(&same, by: &bindings.leavingRows, into: &departed, bindings.audience, &skipped)
        }
        return try Self.match(
            &part, by: &bindings.index, into: &found, bindings.audience, &skipped, leavingPartial: true)
    }

    /// Matches a completed change with the bindings. `swapWhole` then makes the result current. PostgreSQL decides on
    /// values that are still absent.
    mutating func match(
        _ whole: WholeChange, _ bindings: inout PlacedBindings, _ skipped: inout SkippedListeners
    ) throws(ByteError) {
        let part = try TransactionPart(whole.part.asBytes)
        var same = part
        if case .unknownRelation = try Self.match(
            &same, by: &bindings.index, into: &foundWhole, bindings.audience, &skipped)
        {
            bindings.noteRelation(whole.fingerprint, whole.relation, foreign: [])
            same = part
            _ = try Self.match(&same, by: &bindings.index, into: &foundWhole, bindings.audience, &skipped)
        }
        guard bindings.wantDepartures else { return departedWhole.removeAll() }
        same = part
        _ = try Self.match(&same, by: &bindings.leavingRows, into: &departedWhole, bindings.audience, &skipped)
    }

    /// Finds bindings whose view a row leaves, evaluated on the old row. `swapOldRowMatches` then makes the result
    /// current.
    @_lifetime(part: copy part)
    mutating func matchFormer(
        _ part: inout TransactionPart, _ bindings: inout PlacedBindings, _ skipped: inout SkippedListeners
    ) throws(ByteError) {
        _ = try Self.match(&part, by: &bindings.leavingRows, into: &departedByOldRow, bindings.audience, &skipped)
    }

    /// Matches the part's changes with the bindings in one index; all matching uses this function. Records in `skipped`
    /// the listeners whose filters were not evaluated because of their cost, so that the hub can tell their clients.
    @_lifetime(part: copy part)
    private static func match(
        _ part: inout TransactionPart, by index: inout PredicateIndex, into batch: inout MatchBatch,
        _ audience: borrowing Audience, _ skipped: inout SkippedListeners, leavingPartial: Bool = false
    ) throws(ByteError) -> PredicateIndex.Outcome {
        let outcome = try index.match(&part, into: &batch, leavingPartial: leavingPartial)
        if batch.hasSkipped { note(skippedOf: batch, index, audience, in: &skipped) }
        return outcome
    }

    private static func note(
        skippedOf batch: borrowing MatchBatch, _ index: borrowing PredicateIndex, _ audience: borrowing Audience,
        in skipped: inout SkippedListeners
    ) {
        for change in 0..<batch.changeCount {
            for node in 0..<batch.skipped(of: change).count {
                let members = index.members(of: batch.skipped(of: change), at: node)
                for place in members.indices {
                    guard let member = audience.members[members[place]] else { continue }
                    skipped.add(member.listener)
                }
                skipped.drops.add(members.count)
            }
        }
    }

    /// Swaps the matches of the part with those of the completed change. A second call swaps them back.
    mutating func swapWhole() {
        swap(&found, &foundWhole)
        swap(&departed, &departedWhole)
    }

    /// Swaps `departed` with the matches by the old row. A second call swaps them back.
    mutating func swapOldRowMatches() { swap(&departed, &departedByOldRow) }

    // MARK: A change

    /// Number of changes in the group that was matched last.
    var count: Int { found.changeCount }

    /// True if some listener may receive the change. Rows that leave a view are not considered.
    func hasMatches(at place: Int) -> Bool {
        assert(place < found.changeCount, "a change is looked at after it was judged")
        return found.isLeft(place) || !found.certain(of: place).isEmpty || !found.asking(of: place).isEmpty
    }

    /// True if the change's row may leave the view of some binding whose client asked for that.
    func hasDepartures(at place: Int) -> Bool {
        place < departed.changeCount && (!departed.certain(of: place).isEmpty || !departed.asking(of: place).isEmpty)
    }

    /// True if the change could not be matched, because a filter reads a value that the change lacks and only the whole
    /// row has.
    func isLeft(_ place: Int) -> Bool {
        assert(place < found.changeCount, "a change is looked at after it was judged")
        return found.isLeft(place)
    }

    // MARK: Members

    mutating func beginMembers() { withPast.removeAll(keepingCapacity: true) }

    mutating func add(withPast member: UInt32) { withPast.append(member) }

    /// Copies to `nodeMembers` the members (bindings) of a node that match for certain.
    mutating func copyMembers(of node: Int, of place: Int, _ index: borrowing PredicateIndex) {
        Self.copyMembers(of: node, of: place, found, index, to: &nodeMembers)
    }

    private static func copyMembers(
        of node: Int, of place: Int, _ found: borrowing MatchBatch, _ index: borrowing PredicateIndex,
        to numbers: inout [UInt32]
    ) {
        let members = index.members(of: found.certain(of: place), at: node)
        numbers.removeAll(keepingCapacity: true)
        // SAFETY: the pointer is used within the call.
        unsafe members.withUnsafeBufferPointer { unsafe numbers.append(contentsOf: $0) }
    }
}
