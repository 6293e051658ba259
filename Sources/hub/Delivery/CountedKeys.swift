import Judging
import Policy

/// Keys of a membership set, each with the number of rows that have it. A key is in the set while at least one row has
/// it.
struct CountedKeys {
    /// False if the membership has no key column: a holder then has the membership if any row exists.
    private let areKeyed: Bool
    private var counts: [[UInt8]: Int] = [:]
    private(set) var nullCount = 0
    private(set) var rowCount = 0

    init(areKeyed: Bool) { self.areKeyed = areKeyed }

    /// Number of different keys.
    var count: Int { counts.count }
    var isEmpty: Bool { counts.isEmpty && rowCount == 0 }
    /// Keys in sorted order, so that every run of the program gives the same order.
    var inOrder: [[UInt8]] { counts.keys.sorted { $0.lexicographicallyPrecedes($1) } }

    /// False if some count is negative: a row was removed that the set never held, so the counts are wrong.
    var areSound: Bool { rowCount >= 0 && nullCount >= 0 && !counts.values.contains { $0 < 0 } }

    /// True if the count of this key and the counts of all rows are not negative.
    func isSound(at key: [UInt8]?) -> Bool {
        rowCount >= 0 && nullCount >= 0 && (key.map { counts[$0] ?? 0 } ?? 0) >= 0
    }

    /// True if some row of the membership has the key.
    func has(_ key: [UInt8]?) -> Bool {
        guard areKeyed else { return rowCount > 0 }
        return key.map { counts[$0] ?? 0 > 0 } ?? (nullCount > 0)
    }

    mutating func add(_ key: [UInt8]?, _ change: Int) {
        rowCount += change
        guard areKeyed else { return }
        guard let key else {
            nullCount += change
            return
        }
        let count = (counts[key] ?? 0) + change
        counts[key] = count == 0 ? nil : count
        assert(counts[key] != 0, "a key that nothing gives is no key")
    }

    mutating func removeAll() { self = CountedKeys(areKeyed: areKeyed) }

    /// Keys with their counts, in the form in which PostgreSQL's answer to a filling question has them.
    var asFilled: [FilledMembership.Key] {
        var keys = inOrder.map { FilledMembership.Key(text: $0, count: counts[$0] ?? 0) }
        let withoutText = areKeyed ? nullCount : rowCount
        if withoutText > 0 { keys.append(FilledMembership.Key(text: nil, count: withoutText)) }
        return keys
    }
}
