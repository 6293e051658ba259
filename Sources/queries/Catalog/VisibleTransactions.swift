import Postgres

/// Transactions whose effects a snapshot can see.
public struct VisibleTransactions: Sendable, Hashable {
    /// Number below which every transaction is visible or has had no effect.
    public private(set) var firstRunning: UInt64
    var firstUnassigned: UInt64
    var running: Set<UInt64>

    /// Query whose answer is `xmin:xmax:xip_list`.
    public static let question = "SELECT pg_catalog.pg_current_snapshot()::pg_catalog.text"

    public init?(_ rows: Rows) {
        guard let text = rows.first?.first ?? nil else { return nil }
        self.init(text)
    }

    /// Parses a text as `pg_current_snapshot` writes it.
    public init?(_ text: String) {
        let parts = text.split(separator: ":", omittingEmptySubsequences: false)
        guard parts.count == 3, let first = UInt64(parts[0]), let next = UInt64(parts[1]) else { return nil }
        firstRunning = first
        firstUnassigned = next
        // A number that could not be read would count as visible.
        let running = parts[2].split(separator: ",").map { UInt64($0) }
        guard !running.contains(nil), first <= next else { return nil }
        self.running = Set(running.compactMap { $0 })
        assert(self.running.allSatisfy { first <= $0 && $0 < next }, "who runs has begun and not ended")
    }

    /// - Parameter xid: the lower half of the number, as the replication stream gives it.
    public func contains(_ xid: UInt32) -> Bool {
        var full = (firstUnassigned & ~0xffff_ffff) | UInt64(xid)
        // A number ahead of the newest belongs to the epoch before: numbers are valid for half of their range.
        if full >= firstUnassigned, full - firstUnassigned > 1 << 31 {
            guard full >= 1 << 32 else { return false }
            full -= 1 << 32
        }
        return full < firstRunning || full < firstUnassigned && !running.contains(full)
    }
}

/// Transactions that one reading of the database saw.
public struct SeenTransactions: Sendable, Hashable {
    public let visible: VisibleTransactions
    /// Position of PostgreSQL's log before which everything visible was committed.
    public let end: UInt64

    public init(visible: VisibleTransactions, end: UInt64) {
        self.visible = visible
        self.end = end
    }

    public func contains(_ xid: UInt32) -> Bool { visible.contains(xid) }

    /// True if the reading did not see transactions committed at `lsn`: those at `end` or later.
    public func isBehind(_ lsn: UInt64) -> Bool { lsn >= end }

    /// True if the reading included a transaction of the log, so that the hub must not deliver its changes again.
    public func has(_ xid: UInt32, at lsn: UInt64) -> Bool { !isBehind(lsn) && contains(xid) }
}
