import Bytes
import Diagnostics

/// Choice of the hub's policy decisions that are checked against PostgreSQL, to find faults in evaluating policies.
///
/// A choice does not depend on the decision. So the checks also find rows that the hub wrongly withholds. The first
/// changes are checked more often than later ones.
public struct ShadowSampling {
    /// Numbers of policies that can be checked, by table.
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

    /// Counts a change. Returns true if one policy decision on this change must be checked.
    mutating func isDue() -> Bool {
        guard !candidates.isEmpty else { return false }
        count += 1
        guard count >= next else { return false }
        next = count + min(count, Limits.shadowInterval)
        return true
    }

    /// Returns one of the table's policies; nil if there are none. The choice varies, but is the same in each run.
    func choose(_ table: UInt32) -> UInt32? {
        guard let all = candidates[table] else { return nil }
        var hash = KeyHash(seed: count)
        hash.combine(UInt64(table))
        return all[Int(hash.value % UInt64(all.count))]
    }
}
