import Change
import History

/// Rows that one holder gains and loses in one table under a proposal, counted by reason.
final class AccessDiff {
    /// Properties of a change that determine the reason: the operation, and which of several policies show the row.
    private struct Facts: Hashable {
        var operation: UInt8
        var isGain: Bool
        var before: UInt32
        var after: UInt32
    }

    private struct Key: Hashable {
        var isGain: Bool
        var shownBy: RulingReason
        var keptBy: RulingReason
    }

    /// Maximum number of groups (combinations of reasons). Further changes are counted in one group with unknown
    /// reasons.
    private static let most = 100

    private var line: WhatIfReport.Line
    private let before: RuledChanges.OfTable
    private let after: RuledChanges.OfTable
    private let examples: Int
    private var shifts: [WhatIfReport.Shift] = []
    private var byKey: [Key: Int] = [:]
    private var byFacts: [Facts: Int] = [:]
    /// Facts of the last change with the index of their group. Most changes have the same facts as the one before.
    private var last: (facts: Facts, place: Int)?

    init(_ holder: Int, _ table: TableName, _ before: RuledChanges, _ after: RuledChanges, examples: Int) {
        line = WhatIfReport.Line(holder: holder, table: table)
        self.before = before.of(table, holder)
        self.after = after.of(table, holder)
        self.examples = examples
    }

    /// Counts a change that the holder receives now, under the proposal, or both.
    func note(_ offset: UInt64, _ operation: Operation, isTold: Bool, wouldBeTold: Bool) {
        assert(isTold || wouldBeTold, "a change is noted if at least one side tells it")
        line.before += isTold ? 1 : 0
        line.after += wouldBeTold ? 1 : 0
        guard isTold != wouldBeTold else { return }
        line.gains += wouldBeTold ? 1 : 0
        line.losses += isTold ? 1 : 0
        assert(line.after - line.before == line.gains - line.losses, "gains and losses are the difference of the sides")
        let place = place(
            Facts(
                operation: operation.rawValue, isGain: wouldBeTold, before: before.shown(at: offset),
                after: after.shown(at: offset)), operation)
        shifts[place].rows += 1
        if shifts[place].examples.count < examples { shifts[place].examples.append(offset) }
    }

    private func place(_ facts: Facts, _ operation: Operation) -> Int {
        if let last, last.facts == facts { return last.place }
        let place = byFacts[facts] ?? newPlace(facts, operation)
        assert(shifts[place].isGain == facts.isGain, "a group has gains only or losses only")
        last = (facts, place)
        return place
    }

    private func newPlace(_ facts: Facts, _ operation: Operation) -> Int {
        let now = before.ground(operation, facts.before, isTold: !facts.isGain)
        let then = after.ground(operation, facts.after, isTold: facts.isGain)
        var key = Key(
            isGain: facts.isGain, shownBy: facts.isGain ? then : now, keptBy: facts.isGain ? now : then)
        if byKey[key] == nil, shifts.count >= Self.most { (key.shownBy, key.keptBy) = (.unknown, .unknown) }
        let place = byKey[key] ?? shifts.count
        if place == shifts.count {
            byKey[key] = place
            shifts.append(WhatIfReport.Shift(isGain: key.isGain, shownBy: key.shownBy, keptBy: key.keptBy))
        }
        assert(byKey.count == shifts.count, "each group is found by its key")
        assert(shifts.count <= Self.most + 2, "beyond the limit there is one more group for gains and one for losses")
        // The memory is limited. Beyond the limit, the reason is computed again for each change.
        if byFacts.count < 10_000 { byFacts[facts] = place }
        return place
    }

    /// Counts of gains and losses, with the groups sorted: gains first, then by size, the largest first.
    var whole: WhatIfReport.Line {
        let rows = shifts.reduce(0) { $0 + $1.rows }
        assert(rows == line.gains + line.losses, "each gain and each loss is in one group")
        var whole = line
        whole.shifts = shifts.sorted { ($0.isGain ? 0 : 1, -$0.rows) < ($1.isGain ? 0 : 1, -$1.rows) }
        return whole
    }
}
