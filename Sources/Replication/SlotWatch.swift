import Change
import Diagnostics
import Postgres
import System

/// Looks at the slot now and then: how far the stream is behind, and whether the server is about to let go of WAL that
/// is still needed.
struct SlotWatch {
    private let slot: String
    private let catalog: Connection
    private let lagBytes: Gauge
    private var nextAt = Clock.monotonicNanoseconds()
    private var wasWarned = false

    init(slot: String, catalog: Connection, lagBytes: Gauge) {
        self.slot = slot
        self.lagBytes = lagBytes
        self.catalog = catalog
    }

    /// A question that fails is not asked again at once: the stream itself tells when the server is gone.
    mutating func look(_ position: LSN) {
        let now = Clock.monotonicNanoseconds()
        guard now >= nextAt else { return }
        nextAt = now + Limits.slotWatchInterval.wholeNanoseconds
        guard let status = try? SlotStatus.read(slot, catalog) else { return }
        let lag = max(0, status.lagBytes(behind: position))
        lagBytes.set(lag)
        if lag > Limits.noteworthyLagBytes {
            Log.shared.info("catching up", [.slot(slot), .lsn(position), .bytes(lag)])
        }
        warn(status)
    }

    /// PostgreSQL, pg_replication_slots.wal_status: `unreserved` may be `lost` after the next checkpoint.
    private mutating func warn(_ status: SlotStatus) {
        let isEndangered = status.walStatus == "unreserved"
        if isEndangered, !wasWarned {
            Log.shared.error(
                "the server is about to remove WAL that is still needed: a gap is near",
                [
                    .slot(slot), .bytes(status.retainedBytes ?? 0),
                    .hint("raise max_slot_wal_keep_size, and see what holds the hub up"),
                ])
        }
        wasWarned = isEndangered
    }
}
