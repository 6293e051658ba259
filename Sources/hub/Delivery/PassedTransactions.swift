import Catalog
import Diagnostics

/// Transactions that the loop has read. PostgreSQL may not show their effects yet: a commit may wait for a synchronous
/// standby after the log has it.
///
/// The newest are kept with their order, older ones in a set that is limited to `Limits.passedTransactionBlocks`. A
/// commit that waits while more transactions than that get numbers counts as visible.
struct PassedTransactions {
    private var xids: [UInt32] = []
    /// Total number of transactions recorded, including those that are no longer kept.
    private(set) var count = 0
    private var older = TransactionBlocks()
    private static let kept = 65_536

    mutating func note(_ xid: UInt32) {
        if xids.count < Self.kept {
            xids.append(xid)
        } else {
            older.insert(xids[count % Self.kept])
            xids[count % Self.kept] = xid
        }
        count += 1
        assert(xids.count == min(count, Self.kept), "it remembers the last ones")
    }

    /// Returns the number of the first recorded transaction that `seen` does not contain, or a lower one if that is not
    /// among the newest. If `seen` contains all, returns the number that the next transaction gets.
    func firstUnseen(in seen: VisibleTransactions) -> Int {
        if seen.runningXids.contains(where: older.contains) { return 0 }
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

/// Set of transaction numbers, in blocks of 65,536 numbers that follow each other. If there are too many blocks, it
/// forgets the one that has got no number for longest.
struct TransactionBlocks {
    private struct Block {
        /// One bit for each number.
        var bits = [UInt64](repeating: 0, count: 1024)
        var newest = 0
    }

    private var blocks: [UInt32: Block] = [:]
    private var count = 0

    func contains(_ xid: UInt32) -> Bool {
        guard let block = blocks[xid >> 16] else { return false }
        return block.bits[Int(xid >> 6 & 1023)] & (1 << UInt64(xid & 63)) != 0
    }

    mutating func insert(_ xid: UInt32) {
        count += 1
        blocks[xid >> 16, default: Block()].bits[Int(xid >> 6 & 1023)] |= 1 << UInt64(xid & 63)
        blocks[xid >> 16]?.newest = count
        guard blocks.count > Limits.passedTransactionBlocks else { return }
        if let stalest = blocks.min(by: { $0.value.newest < $1.value.newest })?.key { blocks[stalest] = nil }
    }
}
