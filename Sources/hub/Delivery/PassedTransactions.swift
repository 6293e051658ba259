import Catalog

/// Transactions that the loop read most recently. PostgreSQL may not show their effects yet.
struct PassedTransactions {
    private var xids: [UInt32] = []
    /// Total number of transactions recorded, including those that are no longer kept.
    private(set) var count = 0
    private static let kept = 65_536

    mutating func note(_ xid: UInt32) {
        if xids.count < Self.kept {
            xids.append(xid)
        } else {
            xids[count % Self.kept] = xid
        }
        count += 1
        assert(xids.count == min(count, Self.kept), "it remembers the last ones")
    }

    /// Returns the number of the first recorded transaction that `seen` does not contain. If it contains all, returns
    /// the number that the next transaction gets.
    func firstUnseen(in seen: VisibleTransactions) -> Int {
        var first = count
        for place in xids.indices where !seen.contains(xids[place]) {
            first = min(first, number(at: place))
        }
        return first
    }

    private func number(at place: Int) -> Int {
        let newest = (count - 1) % Self.kept
        return place <= newest ? count - 1 - (newest - place) : count - 1 - newest - (Self.kept - place)
    }
}
