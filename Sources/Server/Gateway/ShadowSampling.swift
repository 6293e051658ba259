import Bytes
import Change
import Diagnostics
import Matching
import Policy

/// Now and then PostgreSQL is asked what was decided without it: a safety net under everything that reads policies.
///
/// Pairs of a row and a holder are chosen whether the holder got the row or not, so that what is wrongly kept from somebody
/// is found as well. The first changes are looked at more closely than later ones.
struct ShadowSampling {
    /// Policies that can be checked this way, by table.
    private var candidates: [UInt32: [UInt32]] = [:]
    private var count: UInt64 = 0
    private var next: UInt64 = 1
    private var random = SystemRandomNumberGenerator()

    mutating func add(_ policy: UInt32, of table: UInt32) { candidates[table, default: []].append(policy) }

    mutating func remove(_ policy: UInt32, of table: UInt32) {
        guard let place = candidates[table]?.firstIndex(of: policy), let last = candidates[table]?.popLast() else {
            return
        }
        if last != policy { candidates[table]?[place] = last }
        if candidates[table]?.isEmpty == true { candidates[table] = nil }
    }

    /// Whether one of the change's pairs is to be looked at.
    mutating func isDue() -> Bool {
        guard !candidates.isEmpty else { return false }
        count += 1
        guard count >= next else { return false }
        next = count + min(count, Limits.shadowInterval)
        return true
    }

    mutating func choose(_ table: UInt32) -> UInt32? { candidates[table]?.randomElement(using: &random) }
}

extension Courier {
    /// Asks PostgreSQL about one holder and the change's row, and notes where it says something else.
    mutating func sample(_ change: borrowing Change, _ relation: Relation) throws(ByteError) {
        guard let number = policies.sampling.choose(relation.oid), let entry = policies.entries[number] else { return }
        switch change.operation {
        case .insert, .update: break
        case .delete: if change.oldImage != .full { return }
        case .truncate, .message: return
        }
        let expected: Bool
        switch try index.verdict(of: entry.predicate, on: change) {
        case .yes: expected = true
        case .no, .unknown, .notYes: expected = false
        // PostgreSQL may find another order of evaluation, in which nothing fails.
        case .failed, .ask: return
        }
        let pending = PendingQuestion()
        pending.shadow = PendingQuestion.Shadow(policy: number, judged: entry.judged.identity, expected: expected)
        try checkShadow(pending, number, change, relation)
    }
}
