/// The numbers the hub keeps about itself, ready for `/metrics`: their names and meanings, in one file.
///
/// A process has one, `Metrics.shared`; tests make their own.
public final class Metrics: Sendable {
    public static let shared = Metrics()

    public enum Operation: String, MetricLabel {
        case insert, update, delete, truncate, message

        public static let labelName = "op"
    }

    public enum ReconnectReason: String, MetricLabel {
        /// The connection broke or the server went away.
        case connectionLost = "connection_lost"
        case connectionRefused = "connection_refused"
        case authentication
        case slotBusy = "slot_busy"
        case slotMissing = "slot_missing"
        case publicationMissing = "publication_missing"
        /// The server said nothing for too long.
        case timeout
        /// We stopped reading because the disk did not take more.
        case diskStall = "disk_stall"
        case protocolError = "protocol_error"
        case other

        public static let labelName = "reason"
    }

    private let registry: MetricsRegistry

    // MARK: Ingest
    public let transactionsIngested: Counter
    public let changesIngested: CounterFamily<Operation>
    public let bytesIngested: Counter
    public let transactionsSkipped: Counter
    public let replicationConnected: Gauge
    public let reconnects: CounterFamily<ReconnectReason>
    public let receivedLSN: Gauge
    public let confirmedLSN: Gauge
    public let slotLagBytes: Gauge
    public let gaps: Counter

    // MARK: Event log
    public let entriesAppended: Counter
    public let bytesAppended: Counter
    public let fsyncs: Counter
    public let fsyncSeconds: Histogram
    public let commitToDurableSeconds: Histogram
    public let diskStalls: Counter
    public let logFirstOffset: Gauge
    public let logEndOffset: Gauge
    public let logSizeBytes: Gauge
    public let segmentsRemoved: Counter

    // MARK: Bindings
    public let catalogConnected: Gauge
    public let catalogVersion: Gauge
    public let catalogReads: Counter
    public let catalogReadSeconds: Histogram
    public let catalogTroubles: Counter
    public let bindingsResolved: Counter
    public let judgeConnected: Gauge
    public let judgeQuestions: Counter
    public let judgeFailures: Counter
    public let judgeRoundTripSeconds: Histogram

    public init() {
        let registry = MetricsRegistry()
        self.registry = registry
        transactionsIngested = registry.counter(
            "tidewire_ingest_transactions_total", "Transactions received from PostgreSQL.")
        changesIngested = registry.counters(
            "tidewire_ingest_changes_total", "Changes received from PostgreSQL, by operation.", by: Operation.self)
        bytesIngested = registry.counter(
            "tidewire_ingest_bytes_total", "Bytes of logical replication messages received from PostgreSQL.")
        transactionsSkipped = registry.counter(
            "tidewire_ingest_transactions_skipped_total",
            "Transactions the slot sent again and the event log already held.")
        replicationConnected = registry.gauge(
            "tidewire_replication_connected", "1 while changes are streaming from PostgreSQL, else 0.")
        reconnects = registry.counters(
            "tidewire_replication_reconnects_total", "Attempts to connect again, by what made them necessary.",
            by: ReconnectReason.self)
        receivedLSN = registry.gauge("tidewire_received_lsn", "Last WAL position received, as a number.")
        confirmedLSN = registry.gauge(
            "tidewire_confirmed_lsn", "WAL position confirmed to PostgreSQL after it was durable here, as a number.")
        slotLagBytes = registry.gauge(
            "tidewire_slot_lag_bytes", "WAL that PostgreSQL keeps for the slot beyond the confirmed position.")
        gaps = registry.counter(
            "tidewire_gaps_total", "Times that changes were lost for certain or possibly, each marked in the event log."
        )
        entriesAppended = registry.counter("tidewire_log_entries_appended_total", "Entries appended to the event log.")
        bytesAppended = registry.counter("tidewire_log_bytes_appended_total", "Bytes appended to the event log.")
        fsyncs = registry.counter("tidewire_log_fsyncs_total", "Flushes of the event log to the disk.")
        fsyncSeconds = registry.histogram(
            "tidewire_log_fsync_seconds", "Time one flush to the disk took.", unit: .seconds)
        commitToDurableSeconds = registry.histogram(
            "tidewire_commit_to_durable_seconds",
            "Time from a transaction's commit in PostgreSQL to its durability here (both clocks).", unit: .seconds)
        diskStalls = registry.counter(
            "tidewire_disk_stalls_total", "Times that ingest stopped because the disk was full or failed.")
        logFirstOffset = registry.gauge("tidewire_log_first_offset", "Oldest offset the event log still holds.")
        logEndOffset = registry.gauge("tidewire_log_end_offset", "Offset the next change will get.")
        logSizeBytes = registry.gauge("tidewire_log_size_bytes", "Bytes the event log's segments take.")
        segmentsRemoved = registry.counter(
            "tidewire_log_segments_removed_total", "Segments removed because they were past retention.")
        catalogConnected = registry.gauge(
            "tidewire_catalog_connected", "1 while the catalog can be asked what bindings mean, else 0.")
        catalogVersion = registry.gauge(
            "tidewire_catalog_version", "Changes of tables or rights that the hub has seen since it started.")
        catalogReads = registry.counter(
            "tidewire_catalog_reads_total", "Times that the published tables were read from the catalog.")
        catalogReadSeconds = registry.histogram(
            "tidewire_catalog_read_seconds", "Time one reading of the catalog took.", unit: .seconds)
        catalogTroubles = registry.counter(
            "tidewire_catalog_troubles_total", "Times that the catalog's connection was lost or could not be made.")
        bindingsResolved = registry.counter(
            "tidewire_bindings_resolved_total", "Bindings that were resolved with the database's help.")
        judgeConnected = registry.gauge(
            "tidewire_judge_connected", "1 while PostgreSQL can be asked whether a row matches, else 0.")
        judgeQuestions = registry.counter(
            "tidewire_judge_questions_total", "Rows that PostgreSQL was asked about because the hub could not decide.")
        judgeFailures = registry.counter(
            "tidewire_judge_failures_total", "Such questions that got no answer; the row is not delivered then.")
        judgeRoundTripSeconds = registry.histogram(
            "tidewire_judge_round_trip_seconds", "Time one round trip of such questions took.", unit: .seconds)
    }

    /// All of them as Prometheus reads them.
    public func render() -> [UInt8] {
        registry.render()
    }
}
