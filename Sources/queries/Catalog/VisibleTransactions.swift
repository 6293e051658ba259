import Postgres

/// Transactions whose work a snapshot can see.
public struct VisibleTransactions: Sendable, Hashable {
    /// Number below which every transaction is visible or has had no effect.
    public private(set) var firstRunning: UInt64
    var firstUnassigned: UInt64
    var running: Set<UInt64>

    /// Its answer is `xmin:xmax:xip_list`.
    public static let question = "SELECT pg_catalog.pg_current_snapshot()::pg_catalog.text"

    public init?(_ rows: Rows) {
        guard let text = rows.first?.first ?? nil else { return nil }
        self.init(text)
    }

    /// As `pg_current_snapshot` writes it.
    public init?(_ text: String) {
        let parts = text.split(separator: ":", omittingEmptySubsequences: false)
        guard parts.count == 3, let first = UInt64(parts[0]), let next = UInt64(parts[1]) else { return nil }
        firstRunning = first
        firstUnassigned = next
        // One that could not be read would count as visible.
        let running = parts[2].split(separator: ",").map { UInt64($0) }
        guard !running.contains(nil), first <= next else { return nil }
        self.running = Set(running.compactMap { $0 })
        assert(self.running.allSatisfy { first <= $0 && $0 < next }, "who runs has begun and not ended")
    }

    /// `xid` is the lower half of the number, as the replication stream gives it.
    public func contains(_ xid: UInt32) -> Bool {
        var full = (firstUnassigned & ~0xffff_ffff) | UInt64(xid)
        // A number ahead of the newest is of the age before: numbers live for half of their range.
        if full >= firstUnassigned, full - firstUnassigned > 1 << 31 {
            guard full >= 1 << 32 else { return false }
            full -= 1 << 32
        }
        return full < firstRunning || full < firstUnassigned && !running.contains(full)
    }
}

/// The transactions that one reading of the database saw.
public struct SeenTransactions: Sendable, Hashable {
    public let visible: VisibleTransactions
    /// All that was visible was committed before this position of PostgreSQL's log.
    public let end: UInt64

    public init(visible: VisibleTransactions, end: UInt64) {
        self.visible = visible
        self.end = end
    }

    public func contains(_ xid: UInt32) -> Bool { visible.contains(xid) }

    /// What is committed at `lsn` or later was not seen.
    public func isBehind(_ lsn: UInt64) -> Bool { lsn >= end }

    /// Whether a transaction of the log is in what was read, and so is not to be told once more.
    public func has(_ xid: UInt32, at lsn: UInt64) -> Bool { !isBehind(lsn) && contains(xid) }
}
