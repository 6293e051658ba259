import Change
import Diagnostics
import Postgres
import System

/// Regular check of the slot: the lag of the log, and whether the server is about to remove WAL that the hub still
/// needs.
struct SlotWatch {
    private let slot: String
    private let catalog: Connection
    private let metrics: ProjectMetrics
    private let status: ReplicationStatus
    private var nextAt = Clock.monotonicNanoseconds()
    private var outlook = SlotOutlook()
    private var saidIdleLimit = false
    private var idleLimitSeconds: Int64?

    init(slot: String, catalog: Connection, metrics: ProjectMetrics, status: ReplicationStatus) {
        self.slot = slot
        self.catalog = catalog
        self.metrics = metrics
        self.status = status
    }

    /// Checks the slot if a check is due. A failed query is not repeated before the next check. If the server cannot be
    /// reached, the stream itself reports it.
    mutating func look(_ position: LSN, _ clock: inout LagClock) {
        let now = Clock.monotonicNanoseconds()
        clock.pass(position, at: now)
        guard now >= nextAt else { return }
        nextAt = now + Limits.slotWatchInterval.wholeNanoseconds
        guard let seen = try? SlotStatus.read(slot, catalog) else { return }
        let lag = max(0, seen.lagBytes(behind: position))
        clock.saw(LSN(position.rawValue + UInt64(lag)), position, at: now)
        metrics.slotLagBytes.set(lag)
        metrics.slotLagSeconds.set(clock.seconds(at: now))
        metrics.slotKeptBytes.set(max(0, seen.retainedBytes ?? 0))
        metrics.slotLimitBytes.set(seen.limitBytes ?? 0)
        if lag > Limits.noteworthyLagBytes {
            Log.shared.info("catching up with the WAL", [.slot(slot), .lsn(position), .bytes(lag)])
        }
        sayIdleLimit(seen)
        let sample = SlotOutlook.Sample(
            at: now, kept: seen.retainedBytes ?? 0, limit: seen.limitBytes, isUnreserved: seen.walStatus == "unreserved"
        )
        let notice = outlook.take(sample, reminding: Limits.slotReminderInterval.wholeNanoseconds)
        status.endangered(outlook.level >= .near ? "the slot is near max_slot_wal_keep_size" : nil)
        if let notice { say(notice, sample) }
    }

    var isAlive: Bool { catalog.isUsable }

    /// True if the server may soon remove WAL that the slot needs, or invalidate the slot because the hub has not read
    /// for `seconds`.
    func isAtRisk(afterSeconds seconds: Int64) -> Bool {
        outlook.level >= .near || idleLimitSeconds.map { seconds > $0 / 2 } ?? false
    }

    private func say(_ notice: SlotOutlook.Notice, _ sample: SlotOutlook.Sample) {
        var fields: [LogField] = [.slot(slot), .bytes(sample.kept)]
        if let limit = sample.limit { fields.append(.limit(limit)) }
        if let seconds = notice.secondsLeft { fields.append(.secondsLeft(seconds)) }
        fields.append(.hint("raise max_slot_wal_keep_size, and find out what delays the hub"))
        switch notice.level {
        case .well:
            Log.shared.info("the replication slot keeps less than half of max_slot_wal_keep_size again", [.slot(slot)])
        case .half: Log.shared.warning("the replication slot keeps more than half of max_slot_wal_keep_size", fields)
        case .near:
            Log.shared.error("the replication slot is near max_slot_wal_keep_size: beyond it, changes are lost", fields)
        // PostgreSQL, pg_replication_slots.wal_status: `unreserved` may be `lost` after the next checkpoint.
        case .beyond:
            Log.shared.error(
                "PostgreSQL is about to remove WAL that the hub has not read: changes will be lost", fields)
        }
    }

    /// Logs the limit of PostgreSQL 18's `idle_replication_slot_timeout`. The server counts the time in which no hub
    /// reads.
    private mutating func sayIdleLimit(_ seen: SlotStatus) {
        idleLimitSeconds = seen.idleLimitSeconds
        guard let seconds = seen.idleLimitSeconds, !saidIdleLimit else { return }
        saidIdleLimit = true
        Log.shared.info(
            "PostgreSQL gives up the replication slot if the hub is away for longer than idle_replication_slot_timeout",
            [.slot(slot), .limit(seconds)])
    }
}
