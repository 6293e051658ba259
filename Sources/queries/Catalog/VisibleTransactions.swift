import Postgres

/// Set of transactions whose effects a snapshot of PostgreSQL includes.
public struct VisibleTransactions: Sendable, Hashable {
    /// Lowest number of a transaction that was still running when the snapshot was taken. All lower ones are visible or
    /// were rolled back.
    public private(set) var firstRunning: UInt64
    /// Lowest transaction number that was not yet assigned when the snapshot was taken.
    var firstUnassigned: UInt64
    /// Numbers of the transactions that were running when the snapshot was taken.
    var running: Set<UInt64>

    /// Lower halves of the numbers of the transactions that were running, as the replication stream sends them.
    public var runningXids: [UInt32] { running.map { UInt32(truncatingIfNeeded: $0) } }

    /// Query that returns the snapshot in the form `xmin:xmax:xip_list`.
    public static let question = "SELECT pg_catalog.pg_current_snapshot()::pg_catalog.text"

    public init?(_ rows: Rows) {
        guard let text = rows.first?.first ?? nil else { return nil }
        self.init(text)
    }

    /// Parses a text in the form that `pg_current_snapshot` returns.
    public init?(_ text: String) {
        let parts = text.split(separator: ":", omittingEmptySubsequences: false)
        guard parts.count == 3, let first = UInt64(parts[0]), let next = UInt64(parts[1]) else { return nil }
        firstRunning = first
        firstUnassigned = next
        // If a number could not be read, its transaction would count as visible, so the whole text is refused.
        let running = parts[2].split(separator: ",").map { UInt64($0) }
        guard !running.contains(nil), first <= next else { return nil }
        self.running = Set(running.compactMap { $0 })
        assert(self.running.allSatisfy { first <= $0 && $0 < next }, "who runs has begun and not ended")
    }

    /// True if the snapshot includes the effects of the transaction.
    ///
    /// - Parameter xid: the lower half of the transaction's number, as the replication stream sends it.
    public func contains(_ xid: UInt32) -> Bool {
        var full = (firstUnassigned & ~0xffff_ffff) | UInt64(xid)
        // A number higher than the newest belongs to the previous epoch (round of 32-bit numbers). Numbers are compared
        // within half of their range.
        if full >= firstUnassigned, full - firstUnassigned > 1 << 31 {
            guard full >= 1 << 32 else { return false }
            full -= 1 << 32
        }
        return full < firstRunning || full < firstUnassigned && !running.contains(full)
    }
}

/// Transactions that one reading of the database has seen, with a position in the WAL.
public struct SeenTransactions: Sendable, Hashable {
    public let visible: VisibleTransactions
    /// LSN after the commit of every visible transaction.
    public let end: UInt64

    public init(visible: VisibleTransactions, end: UInt64) {
        self.visible = visible
        self.end = end
    }

    public func contains(_ xid: UInt32) -> Bool { visible.contains(xid) }

    /// True if the reading cannot have seen a transaction that committed at `lsn`, because `lsn` is at `end` or later.
    public func isBehind(_ lsn: UInt64) -> Bool { lsn >= end }

    /// True if the reading included the transaction, so that the hub must not deliver its changes again.
    public func has(_ xid: UInt32, at lsn: UInt64) -> Bool { !isBehind(lsn) && contains(xid) }
}
