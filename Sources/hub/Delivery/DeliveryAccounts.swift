import Change
import Diagnostics
import System

/// Counters of one pipeline's deliveries and their delays.
struct DeliveryAccounts {
    private let time: any TimeSource
    private let deliveries: Counter
    private let delays: Histogram
    private var tables: TableDelays
    /// Unix time in microseconds at which the turn began or the last delivery was counted, whichever is later.
    private(set) var moment: Int64 = 0

    init(_ time: any TimeSource, _ metrics: ProjectMetrics) {
        self.time = time
        deliveries = metrics.deliveries
        delays = metrics.commitToSocketSeconds
        tables = TableDelays(metrics.tables)
    }

    mutating func beginTurn() { moment = time.unixMicroseconds() }

    /// Counts deliveries of a change in the metrics of the change's table.
    mutating func note(_ count: Int, of fingerprint: UInt64, _ relation: Relation) {
        tables.note(count, of: fingerprint, relation)
    }

    /// Counts the deliveries of a part of a transaction, and records their delay since the commit. `committed` is the
    /// commit's Unix time in microseconds.
    mutating func tell(_ delivered: Int, committed: Int64) {
        guard delivered > 0 else { return }
        count(delivered)
        moment = time.unixMicroseconds()
        let microseconds = max(0, moment - committed)
        delays.record(UInt64(microseconds) * 1000)
        tables.tell(after: UInt64(microseconds) * 1000)
    }

    func count(_ delivered: Int) { deliveries.add(delivered) }
}
