import Bytes
import Diagnostics

/// Choice of decisions that are checked against the tables themselves: a safety net under all code that reads policies.
///
/// Pairs of a row and a holder are chosen whether the holder got the row or not. So the check also finds rows that are
/// wrongly withheld. The first changes are checked more closely than later ones.
public struct ShadowSampling {
    /// Policies that can be checked this way, by table.
    private var candidates: [UInt32: [UInt32]] = [:]
    private var count: UInt64 = 0
    private var next: UInt64 = 1

    public mutating func add(_ policy: UInt32, of table: UInt32) { candidates[table, default: []].append(policy) }

    public mutating func remove(_ policy: UInt32, of table: UInt32) {
        guard let place = candidates[table]?.firstIndex(of: policy), let last = candidates[table]?.popLast() else {
            return
        }
        if last != policy { candidates[table]?[place] = last }
        if candidates[table]?.isEmpty == true { candidates[table] = nil }
    }

    /// True if one pair of the change must be checked.
    mutating func isDue() -> Bool {
        guard !candidates.isEmpty else { return false }
        count += 1
        guard count >= next else { return false }
        next = count + min(count, Limits.shadowInterval)
        return true
    }

    /// Returns a policy of the table. The choice changes with each checked change, and is the same in each run.
    func choose(_ table: UInt32) -> UInt32? {
        guard let all = candidates[table] else { return nil }
        var hash = KeyHash(seed: count)
        hash.combine(UInt64(table))
        return all[Int(hash.value % UInt64(all.count))]
    }
}
