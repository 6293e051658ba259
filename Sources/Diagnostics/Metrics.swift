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

    public enum UnfinishedInput: String, MetricLabel {
        /// All of them together took what there is for that.
        case noRoom = "no_room"
        case tooSlow = "too_slow"

        public static let labelName = "reason"
    }

    /// Whose limit it was, of what connections hold.
    public enum RoomRefused: String, MetricLabel {
        case connection, project

        public static let labelName = "limit"
    }

    public enum DropReason: String, MetricLabel {
        /// The socket did not take what was sent; it was closed with a reason to come back.
        case slowConsumer = "slow_consumer"
        /// A question to PostgreSQL was not answered; the client was told.
        case unanswered
        /// Row level security is active for the role; the client was told when it subscribed.
        case rowSecurity = "row_security"
        /// A delete does not say what a filter or a policy looks at, and the event log did not have the row; the client was
        /// told when it subscribed that there may be such.
        case absentValue = "absent_value"
        /// A filter would have taken more time than there was for it; the client was told.
        case tooMuchWork = "too_much_work"
        /// A project's rate was exceeded; the channel was closed and told.
        case rateLimit = "rate_limit"
        /// A payload over the limit.
        case tooLarge = "too_large"
        /// Said on one loop while another was far behind.
        case backlog
        /// Said by who may not write to a private channel.
        case denied

        public static let labelName = "reason"
    }

    /// Where the last version of a deleted row was found.
    public enum Recall: String, MetricLabel {
        case memory
        case log
        case missing

        public static let labelName = "found"
    }

    /// How a question for messages that were sent before was answered.
    public enum Replay: String, MetricLabel {
        case log
        /// Also from the table: the log does not reach back so far.
        case table
        case mustRefetch = "must_refetch"
        case failed

        public static let labelName = "answer"
    }

    public enum Refusal: String, MetricLabel {
        case badRequest = "bad_request"
        case token
        case version
        case notFound = "not_found"
        case draining
        case timeout
        /// The project is switched off.
        case suspended
        /// It has as many users, or joins a second, as it may.
        case limit

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
    public let presenceMarksDropped: Counter
    public let messagesSkipped: Counter
    public let replays: CounterFamily<Replay>
    public let replaySeconds: Histogram

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
    public let broadcasts: Counter
    public let broadcastDeliveries: Counter
    public let presenceChanges: Counter
    public let presenceDeliveries: Counter
    public let commitToSocketSeconds: Histogram
    public let readerPauses: Counter
    public let readerStalls: Counter
    public let heldBytes: Gauge
    public let recalls: CounterFamily<Recall>
    public let recallSeconds: Histogram
    public let generatedValues: Counter
    public let generatedFailures: Counter

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
    public let filtersRested: Counter
    public let filterParts: Gauge
    public let filtersRefused: CounterFamily<RoomRefused>
    public let presenceBytes: Gauge
    public let presenceRefused: CounterFamily<RoomRefused>
    public let unfinishedInputBytes: Gauge
    public let unfinishedInputRefused: CounterFamily<UnfinishedInput>

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
    public let channelProbes: Counter
    public let channelProbeFailures: Counter
    public let channelProbeSeconds: Histogram
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
        presenceMarksDropped = registry.counter(
            "tidewire_presence_marks_dropped_total",
            "Joins and leaves that are not in the event log because it could not take them in time.")
        messagesSkipped = registry.counter(
            "tidewire_messages_skipped_total",
            "Rows of realtime.messages that could not be broadcast: they lack an event, a payload or something else.")
        replays = registry.counters(
            "tidewire_replays_total", "Questions for messages sent before, by how they were answered.", by: Replay.self)
        replaySeconds = registry.histogram(
            "tidewire_replay_seconds", "Time one such question waited for its answer.", unit: .seconds)
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
        broadcasts = registry.counter("tidewire_broadcasts_total", "Messages that were said to a topic.")
        broadcastDeliveries = registry.counter(
            "tidewire_broadcast_deliveries_total", "Messages of topics handed to a socket, one for each channel.")
        presenceChanges = registry.counter("tidewire_presence_changes_total", "Presences that came, went or changed.")
        presenceDeliveries = registry.counter(
            "tidewire_presence_deliveries_total", "Differences in presence handed to a socket, one for each channel.")
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
        generatedValues = registry.counter(
            "tidewire_generated_values_total", "Values of generated columns that PostgreSQL was asked to compute.")
        generatedFailures = registry.counter(
            "tidewire_generated_failures_total", "Such values that it could not compute; they are left out of changes.")

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
        filtersRested = registry.counter(
            "tidewire_filters_rested_total",
            "Times a connection was left out of changes for a while, because its filters took more than their share.")
        filterParts = registry.gauge(
            "tidewire_filter_parts", "Conditions, and values that these name, in the filters of all channels.")
        filtersRefused = registry.counters(
            "tidewire_filters_refused_total",
            "Joins refused because filters have as many conditions and values as they may, by whose limit it was.",
            by: RoomRefused.self)
        presenceBytes = registry.gauge(
            "tidewire_presence_bytes", "What all channels of this hub's connections track as their presence.")
        presenceRefused = registry.counters(
            "tidewire_presence_refused_total",
            "Presences that were not tracked because there is no room for them, by whose limit it was.",
            by: RoomRefused.self)
        unfinishedInputBytes = registry.gauge(
            "tidewire_unfinished_input_bytes", "What is kept of clients' messages and requests that are not whole.")
        unfinishedInputRefused = registry.counters(
            "tidewire_unfinished_input_refused_total",
            "Connections ended for messages or requests that they began and did not finish, by reason.",
            by: UnfinishedInput.self)
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
        channelProbes = registry.counter(
            "tidewire_channel_probes_total", "Times that somebody's rights in a private channel were asked for.")
        channelProbeFailures = registry.counter(
            "tidewire_channel_probe_failures_total", "Such questions that got no answer; they count as no rights.")
        channelProbeSeconds = registry.histogram(
            "tidewire_channel_probe_seconds", "Time from such a question to its answer.", unit: .seconds)
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
