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

    public enum ChannelEvent: String, MetricLabel {
        case joined, refused, left, closed

        public static let labelName = "event"
    }

    public enum DropReason: String, MetricLabel {
        /// The socket did not take what was sent; it was closed with a reason to come back.
        case slowConsumer = "slow_consumer"
        /// A question to PostgreSQL was not answered; the client was told.
        case unanswered
        /// Row level security is active for the role; the client was told when it subscribed.
        case rowSecurity = "row_security"

        public static let labelName = "reason"
    }

    /// Where the last version of a deleted row was found.
    public enum Recall: String, MetricLabel {
        case memory
        case log
        case missing

        public static let labelName = "found"
    }

    public enum Refusal: String, MetricLabel {
        case badRequest = "bad_request"
        case token
        case version
        case notFound = "not_found"
        case draining
        case timeout

        public static let labelName = "reason"
    }

    public enum RefusalReason: String, MetricLabel {
        case tooManyConnections = "too_many_connections"
        case outOfDescriptors = "out_of_descriptors"
        case outOfMemory = "out_of_memory"
        /// The TLS handshake failed or took too long.
        case handshake

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

    // MARK: Clients
    public let sessions: Gauge
    public let channels: Gauge
    public let subscriptions: Gauge
    public let channelEvents: CounterFamily<ChannelEvent>
    public let refusals: CounterFamily<Refusal>
    public let messagesReceived: Counter
    public let messagesMalformed: Counter
    public let changesMatched: Counter
    public let deliveries: Counter
    public let drops: CounterFamily<DropReason>
    public let commitToSocketSeconds: Histogram
    public let readerPauses: Counter
    public let readerStalls: Counter
    public let heldBytes: Gauge
    public let recalls: CounterFamily<Recall>
    public let recallSeconds: Histogram

    // MARK: Sockets
    public let connectionsOpen: Gauge
    public let connectionsAccepted: Counter
    public let connectionsRefused: CounterFamily<RefusalReason>
    public let socketBytesReceived: Counter
    public let socketBytesSent: Counter
    public let piecesSent: Counter
    public let connectionsBlocked: Gauge
    public let outboxBytes: Gauge
    public let connectionsFellBehind: Counter

    // MARK: Bindings
    public let catalogConnected: Gauge
    public let catalogVersion: Gauge
    public let catalogReads: Counter
    public let catalogReadSeconds: Histogram
    public let catalogTroubles: Counter
    public let policiesMisread: Counter
    public let bindingsResolved: Counter
    public let judgeConnected: Gauge
    public let judgeQuestions: Counter
    public let judgeFailures: Counter
    public let judgeRoundTripSeconds: Histogram
    public let policyConnections: Gauge
    public let policyPairs: Counter
    public let policyFailures: Counter
    public let policyStatementSeconds: Histogram
    public let policyWaits: Counter
    public let policyTerms: Counter
    public let membershipFills: Counter
    public let membershipSets: Gauge
    public let shadowSamples: Counter
    public let shadowContradictions: Counter
    public let membershipRefills: Counter

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
        sessions = registry.gauge("tidewire_sessions", "WebSocket clients connected.")
        channels = registry.gauge("tidewire_channels", "Channels joined.")
        subscriptions = registry.gauge(
            "tidewire_subscriptions", "Bindings of channels to tables, one for each binding and table.")
        channelEvents = registry.counters(
            "tidewire_channel_events_total", "What happened to channels.", by: ChannelEvent.self)
        refusals = registry.counters(
            "tidewire_refused_requests_total", "HTTP requests and upgrades refused, by reason.", by: Refusal.self)
        messagesReceived = registry.counter("tidewire_messages_received_total", "Messages received from clients.")
        messagesMalformed = registry.counter(
            "tidewire_messages_malformed_total", "Messages from clients that could not be read and were dropped.")
        changesMatched = registry.counter(
            "tidewire_changes_matched_total", "Changes that at least one subscription wanted, counted on each loop.")
        deliveries = registry.counter("tidewire_deliveries_total", "Changes handed to a socket, one for each channel.")
        drops = registry.counters(
            "tidewire_drops_total", "Deliveries that were not made, by reason; the client was told each time.",
            by: DropReason.self)
        commitToSocketSeconds = registry.histogram(
            "tidewire_commit_to_socket_seconds",
            "Time from a transaction's commit in PostgreSQL to its first delivery to a socket (both clocks).",
            unit: .seconds)
        readerPauses = registry.counter(
            "tidewire_reader_pauses_total", "Times a loop waited for the catalog before it went on reading the log.")
        readerStalls = registry.counter(
            "tidewire_reader_stalls_total",
            "Times a loop waited for clients to take what they had before it went on reading the log.")
        heldBytes = registry.gauge(
            "tidewire_held_bytes", "Bytes of deliveries that wait for PostgreSQL's answer to a filter.")
        recalls = registry.counters(
            "tidewire_recalls_total",
            "Deletes judged by the row's last version in the event log, by where that was found.", by: Recall.self)
        recallSeconds = registry.histogram(
            "tidewire_recall_seconds", "Time one search of the event log for such versions took.", unit: .seconds)

        connectionsOpen = registry.gauge("tidewire_connections_open", "Client connections.")
        connectionsAccepted = registry.counter("tidewire_connections_accepted_total", "Client connections accepted.")
        connectionsRefused = registry.counters(
            "tidewire_connections_refused_total", "Client connections closed before they were of use, by reason.",
            by: RefusalReason.self)
        socketBytesReceived = registry.counter(
            "tidewire_socket_received_bytes_total", "Bytes received from clients, without TLS.")
        socketBytesSent = registry.counter("tidewire_socket_sent_bytes_total", "Bytes sent to clients, without TLS.")
        piecesSent = registry.counter(
            "tidewire_socket_pieces_total", "Frames, or parts of large ones, queued for clients.")
        connectionsBlocked = registry.gauge(
            "tidewire_connections_blocked", "Client connections whose socket takes no more for now.")
        outboxBytes = registry.gauge(
            "tidewire_outbox_bytes", "Memory held for what blocked client connections have not taken.")
        connectionsFellBehind = registry.counter(
            "tidewire_connections_fell_behind_total", "Client connections closed because they took too little too late."
        )

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
        policiesMisread = registry.counter(
            "tidewire_policies_misread_total",
            "Policies that PostgreSQL reads otherwise than the hub did, and decides on itself.")
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
        policyConnections = registry.gauge(
            "tidewire_policy_connections", "Connections on which PostgreSQL can be asked about rows under policies.")
        policyPairs = registry.counter(
            "tidewire_policy_pairs_total", "Pairs of a row and a subscriber that PostgreSQL was asked about.")
        policyFailures = registry.counter(
            "tidewire_policy_failures_total", "Such pairs that got no answer; the row is not delivered then.")
        policyStatementSeconds = registry.histogram(
            "tidewire_policy_statement_seconds", "Time one statement about such pairs took.", unit: .seconds)
        policyWaits = registry.counter(
            "tidewire_policy_visibility_waits_total",
            "Times that a committed transaction could not be seen yet by those who asked about its rows.")
        policyTerms = registry.counter(
            "tidewire_policy_terms_total", "Subscribers for whom PostgreSQL evaluated what depends on claims alone.")
        shadowSamples = registry.counter(
            "tidewire_shadow_samples_total", "Decisions on rows that PostgreSQL was asked to confirm.")
        shadowContradictions = registry.counter(
            "tidewire_shadow_contradictions_total",
            "Of these, those that it contradicted: the policy is left to PostgreSQL from there on. Never expected.")
        membershipSets = registry.gauge(
            "tidewire_membership_sets", "Subscribers' memberships that are kept from the stream.")
        membershipRefills = registry.counter(
            "tidewire_membership_refills_total",
            "Memberships that had to be read anew, because the stream did not say all that happened to them.")
        membershipFills = registry.counter(
            "tidewire_membership_fills_total", "Subscribers whose memberships were read from their table.")
    }

    /// All of them as Prometheus reads them.
    public func render() -> [UInt8] {
        registry.render()
    }
}
