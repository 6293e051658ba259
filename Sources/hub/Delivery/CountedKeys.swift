import Judging
import Policy

/// Keys of a membership set with the number of rows that give each one. A key stays for as long as one row gives it.
struct CountedKeys {
    /// False if the membership has no key: it then only matters if there are rows.
    private let areKeyed: Bool
    private var counts: [[UInt8]: Int] = [:]
    private(set) var nullCount = 0
    private(set) var rowCount = 0

    init(areKeyed: Bool) { self.areKeyed = areKeyed }

    /// Number of different keys.
    var count: Int { counts.count }
    var isEmpty: Bool { counts.isEmpty && rowCount == 0 }
    /// Keys in an order that does not differ between runs.
    var inOrder: [[UInt8]] { counts.keys.sorted { $0.lexicographicallyPrecedes($1) } }

    /// False if a row was removed that was never there: the counts are wrong then.
    var areSound: Bool { rowCount >= 0 && nullCount >= 0 && !counts.values.contains { $0 < 0 } }

    func isSound(at key: [UInt8]?) -> Bool {
        rowCount >= 0 && nullCount >= 0 && (key.map { counts[$0] ?? 0 } ?? 0) >= 0
    }

    /// True if some row gives the key.
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

    /// Keys as PostgreSQL would answer them.
    var asFilled: [FilledMembership.Key] {
        var keys = inOrder.map { FilledMembership.Key(text: $0, count: counts[$0] ?? 0) }
        let withoutText = areKeyed ? nullCount : rowCount
        if withoutText > 0 { keys.append(FilledMembership.Key(text: nil, count: withoutText)) }
        return keys
    }
}
