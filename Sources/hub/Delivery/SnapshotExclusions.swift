import Catalog
import Change

/// Transactions that listeners already have from the snapshot with which they began. An entry is kept until the log has
/// passed all of its transactions.
struct SnapshotExclusions {
    private var seen: [UInt32: SeenTransactions] = [:]

    mutating func add(_ transactions: SeenTransactions, for listener: UInt32) { seen[listener] = transactions }
    mutating func remove(_ listener: UInt32) { seen[listener] = nil }

    /// Begins a transaction, or a part of one that ends before offset `end`. Listeners that have it from their snapshot
    /// skip it.
    mutating func begin(_ info: TransactionInfo, endingBefore end: UInt64, _ audience: inout Audience) {
        if seen.isEmpty { return }
        for (listener, transactions) in seen {
            if transactions.isBehind(info.commitLSN.rawValue) {
                seen[listener] = nil
            } else if transactions.contains(info.xid) {
                audience.skip(listener, before: end)
            }
        }
    }
}
