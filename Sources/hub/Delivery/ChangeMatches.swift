import Bytes
import Change
import Diagnostics
import Matching

/// Bindings that match the changes of a part, in lists that serve one change after the other.
struct ChangeMatches: ~Copyable {
    /// Bindings that match a change.
    private(set) var found = MatchBatch()
    /// The same, by the whole row that the log had.
    private var foundWhole = MatchBatch()
    /// Bindings whose clients want to hear of rows that leave their view.
    private(set) var departed = MatchBatch()
    /// The same, by the whole row.
    private var departedWhole = MatchBatch()
    /// The same, by the row as it was before.
    private var departedFormer = MatchBatch()
    /// Members of the current node, copied out of the index, so that the index is not held while they are served.
    private(set) var nodeMembers: [UInt32] = []
    /// Members that see the current change, for which the hub must find out if they may see the old row.
    private(set) var withPast: [UInt32] = []

    // MARK: Matching

    /// Judges some of the part's next changes.
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

    /// Judges a completed change, for `useWhole`. PostgreSQL is asked about values that are still absent.
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

    /// Judges whose view the row leaves by the row as it was before, for `useFormer`.
    @_lifetime(part: copy part)
    mutating func matchFormer(
        _ part: inout TransactionPart, _ bindings: inout PlacedBindings, _ skipped: inout SkippedListeners
    ) throws(ByteError) {
        _ = try Self.match(&part, by: &bindings.leavingRows, into: &departedFormer, bindings.audience, &skipped)
    }

    /// Matches changes; all matching goes through this function. Notes listeners that were left out because of the
    /// work, so that the hub can tell them.
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

    /// Puts the matches of the completed change in place of the part's, or puts those back.
    mutating func swapWhole() {
        swap(&found, &foundWhole)
        swap(&departed, &departedWhole)
    }

    /// Puts the departures by the former row in place of the part's, or puts those back.
    mutating func swapFormer() { swap(&departed, &departedFormer) }

    // MARK: A change

    /// Number of changes that were judged.
    var count: Int { found.changeCount }

    /// True if some listener perhaps gets the change, apart from departures.
    func hasMatches(at place: Int) -> Bool {
        assert(place < found.changeCount, "a change is looked at after it was judged")
        return found.isLeft(place) || !found.certain(of: place).isEmpty || !found.asking(of: place).isEmpty
    }

    func hasDepartures(at place: Int) -> Bool {
        place < departed.changeCount && (!departed.certain(of: place).isEmpty || !departed.asking(of: place).isEmpty)
    }

    /// True if the change cannot be judged without its whole row.
    func isLeft(_ place: Int) -> Bool {
        assert(place < found.changeCount, "a change is looked at after it was judged")
        return found.isLeft(place)
    }

    // MARK: Members

    mutating func beginMembers() { withPast.removeAll(keepingCapacity: true) }

    mutating func add(withPast member: UInt32) { withPast.append(member) }

    /// Copies the members of a node that certainly match to `nodeMembers`.
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
