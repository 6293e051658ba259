import Catalog
import Change

/// Transactions in the snapshot with which a listener began, until the log has passed all of them. The listener already
/// has them.
struct SnapshotExclusions {
    private var seen: [UInt32: SeenTransactions] = [:]

    mutating func add(_ transactions: SeenTransactions, for listener: UInt32) { seen[listener] = transactions }
    mutating func remove(_ listener: UInt32) { seen[listener] = nil }

    /// Begins a transaction or a part of one, which ends before offset `end`. Listeners that already have the transaction
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
