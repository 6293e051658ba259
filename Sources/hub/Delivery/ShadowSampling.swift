import Diagnostics

/// Which decisions the tables themselves are asked about: a safety net under everything that reads policies.
///
/// Pairs of a row and a holder are chosen whether the holder got the row or not, so that what is wrongly kept from somebody
/// is found as well. The first changes are looked at more closely than later ones.
public struct ShadowSampling {
    /// Policies that can be checked this way, by table.
    private var candidates: [UInt32: [UInt32]] = [:]
    private var count: UInt64 = 0
    private var next: UInt64 = 1
    private var random = SystemRandomNumberGenerator()

    public mutating func add(_ policy: UInt32, of table: UInt32) { candidates[table, default: []].append(policy) }

    public mutating func remove(_ policy: UInt32, of table: UInt32) {
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
