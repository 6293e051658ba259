/// Metrics of one project. Each name and help text is written here once.
///
/// The project that the hub's own settings describe has no project label, so a hub without further projects has none.
/// For other projects, the label `tenant` is the project's name. The code that starts a project makes one instance and
/// passes it on.
public final class ProjectMetrics: Sendable {
    public enum Operation: String, MetricLabel {
        case insert, update, delete, truncate, message

        public static let labelName = "op"
    }

    public enum ReconnectReason: String, MetricLabel {
        /// The connection broke or PostgreSQL ended it.
        case connectionLost = "connection_lost"
        case connectionRefused = "connection_refused"
        case authentication
        case slotBusy = "slot_busy"
        case slotMissing = "slot_missing"
        case publicationMissing = "publication_missing"
        /// The server's `wal_level` does not allow logical replication.
        case walLevel = "wal_level"
        /// PostgreSQL sent nothing for too long.
        case timeout
        /// The hub stopped reading because the disk accepted no more data.
        case diskStall = "disk_stall"
        /// An operator paused the stream.
        case paused
        /// The servers of the cluster cannot be reached, or their stream cannot be used.
        case cluster
        case protocolError = "protocol_error"
        case other

        public static let labelName = "reason"
    }

    public enum ChannelEvent: String, MetricLabel {
        case joined, refused, left, closed

        public static let labelName = "event"
    }

    public enum DropReason: String, MetricLabel {
        /// The socket did not accept bytes fast enough. The hub closed it with a code that makes clients reconnect.
        case slowConsumer = "slow_consumer"
        /// PostgreSQL did not answer a question. The hub told the client.
        case unanswered
        /// Counted by earlier versions only. The label stays for existing dashboards.
        case rowSecurity = "row_security"
        /// A delete lacks a value that a filter or a policy needs, and the event log has no earlier version of the row.
        /// The hub told the client at its subscription that this may happen.
        case absentValue = "absent_value"
        /// A filter would have taken more time than its allowance. The hub told the client.
        case tooMuchWork = "too_much_work"
        /// A rate limit of the project was exceeded. The hub told the channel and closed it.
        case rateLimit = "rate_limit"
        /// The payload exceeded the limit.
        case tooLarge = "too_large"
        /// A loop did not receive a message sent on another loop, because it was too far behind.
        case backlog
        /// The sender has no right to write to the private channel.
        case denied

        public static let labelName = "reason"
    }

    /// Reason why the token of a client was refused.
    public enum TokenRefusal: String, MetricLabel {
        case missing, malformed
        /// The algorithm is not accepted, or the key is not configured.
        case unknownKey = "unknown_key"
        case badSignature = "bad_signature"
        case expired
        case notYetValid = "not_yet_valid"
        /// A claim has a value that is not allowed, such as another issuer or audience.
        case wrongClaim = "wrong_claim"
        /// Clients may not use this role.
        case wrongRole = "wrong_role"
        /// The token has no `role` or no `exp`.
        case claimsMissing = "claims_missing"

        public static let labelName = "reason"
    }

    public enum FeedEvent: String, MetricLabel {
        case begun, refused
        /// The hub cannot continue from the requested position. The client must fetch its data again.
        case behind
        /// The answer ended early, for example because its token expired, the hub stopped, or the history has a gap.
        case cut

        public static let labelName = "event"
    }

    /// Reason why a channel was parked: it left the live follower and continues from the log later.
    public enum Parked: String, MetricLabel {
        /// The socket accepted fewer bytes than the hub had to send.
        case socket
        /// PostgreSQL answered questions about filters and policies more slowly than changes arrived.
        case answers
        /// The channel first receives a snapshot of the existing rows.
        case snapshot
        /// A commit on a table that the channel listens to is not visible in PostgreSQL yet.
        case standby

        public static let labelName = "reason"
    }

    /// Place where the hub found the last version of a deleted row.
    public enum Recall: String, MetricLabel {
        case memory
        case log
        case missing

        public static let labelName = "found"
    }

    /// Source from which the hub answered a request for messages that were sent earlier.
    public enum Replay: String, MetricLabel {
        case log
        /// Messages from the log and from the table, because the log does not reach back far enough.
        case table
        case failed

        public static let labelName = "answer"
    }

    /// Outcome of a client's request to resume from a position.
    public enum Resume: String, MetricLabel {
        case recovered
        case olderThanRetention = "older_than_retention"
        case otherEpoch = "epoch_changed"
        case unknown = "unknown_position"
        case unreadable = "log_unreadable"

        public static let labelName = "outcome"
    }

    /// Outcome of a client's request to begin with the existing rows.
    public enum Snapshot: String, MetricLabel {
        case complete
        /// The client left, or its token expired.
        case cancelled
        /// The snapshot failed. The hub told the client why.
        case failed

        public static let labelName = "outcome"
    }

    // MARK: State
    public let running = Gauge(
        "tidewire_project_running", "1 while the project runs; 0 while it starts, stops or cannot be started.")
    public let replicationConnected = Gauge(
        "tidewire_replication_connected", "1 while changes are streaming from PostgreSQL, else 0.")
    public let receivedLSN = Gauge("tidewire_received_lsn", "Last WAL position received from PostgreSQL, as a number.")
    public let confirmedLSN = Gauge(
        "tidewire_confirmed_lsn",
        "Last WAL position confirmed to PostgreSQL, after it was durable in the event log, as a number.")
    public let slotLagBytes = Gauge(
        "tidewire_slot_lag_bytes", "Bytes of WAL that PostgreSQL has written after the slot's confirmed position.")
    public let slotLagSeconds = Gauge(
        "tidewire_slot_lag_seconds",
        "Minimum number of seconds since the event log last held everything that PostgreSQL had committed.")
    public let slotKeptBytes = Gauge(
        "tidewire_slot_kept_bytes",
        "Bytes of WAL that PostgreSQL keeps for the slot, from the slot's restart position on.")
    public let slotLimitBytes = Gauge(
        "tidewire_slot_limit_bytes",
        "Bytes of WAL that PostgreSQL keeps for the slot before it invalidates the slot (max_slot_wal_keep_size); "
            + "0 if there is no limit.")
    public let dataFreeBytes = Gauge("tidewire_data_free_bytes", "Free space on the disk of the event log, in bytes.")
    public let logFirstOffset = Gauge("tidewire_log_first_offset", "Oldest offset that the event log still holds.")
    public let logEndOffset = Gauge("tidewire_log_end_offset", "Offset that the next change in the event log will get.")
    public let slowestReaderOffset = Gauge(
        "tidewire_slowest_reader_offset",
        "Lowest event log offset that any channel still needs; the log's end if no channel is behind.")
    public let logUnreadable = Gauge(
        "tidewire_log_unreadable",
        "Socket loops that cannot read the event log now, so that their clients wait; 0 is normal.")
    public let logSizeBytes = Gauge("tidewire_log_size_bytes", "Bytes that the segments of the event log take.")

    public let catalogConnected = Gauge(
        "tidewire_catalog_connected", "1 while the hub can read the catalog of PostgreSQL to resolve bindings, else 0.")
    public let catalogVersion = Gauge(
        "tidewire_catalog_version", "Changes of tables or rights that the hub has seen since it started.")
    public let judgeConnected = Gauge(
        "tidewire_judge_connected",
        "1 while the hub can ask PostgreSQL about rows for which it cannot decide a filter, else 0.")

    // MARK: Ingest
    public let transactionsIngested = Counter(
        "tidewire_ingest_transactions_total", "Transactions received from PostgreSQL by replication.")
    public let changesIngested = CounterFamily<Operation>(
        "tidewire_ingest_changes_total", "Row changes and messages received from PostgreSQL, by operation.")
    public let bytesIngested = Counter(
        "tidewire_ingest_bytes_total", "Bytes of logical replication messages received from PostgreSQL.")
    public let transactionsSkipped = Counter(
        "tidewire_ingest_transactions_skipped_total",
        "Transactions that PostgreSQL sent again although the event log already held them.")
    public let reconnects = CounterFamily<ReconnectReason>(
        "tidewire_replication_reconnects_total", "Attempts to reconnect to the replication stream, by reason.")
    public let gaps = Counter(
        "tidewire_gaps_total", "Times that changes were lost or may have been lost. The event log marks each as a gap.")
    public let presenceMarksDropped = Counter(
        "tidewire_presence_marks_dropped_total",
        "Presence joins and leaves missing from the event log because their queue had no room.")
    public let ledgerNotesDropped = Counter(
        "tidewire_ledger_notes_dropped_total",
        "Channel events and other ledger records missing from the event log because their queue had no room.")
    public let messagesSkipped = Counter(
        "tidewire_messages_skipped_total",
        "Rows of realtime.messages that the hub could not broadcast, because an event, a payload or another part "
            + "is missing or invalid.")
    public let replays = CounterFamily<Replay>(
        "tidewire_replays_total", "Requests of clients to replay earlier messages, by answer.")
    public let resumes = CounterFamily<Resume>(
        "tidewire_resumes_total", "Joins that asked to resume from a position of the event log, by outcome.")
    public let returns = CounterFamily<Resume>(
        "tidewire_returns_total",
        "Channels whose clients reconnected without asking for a position, by outcome of the automatic resume.")
    public let departures = Gauge(
        "tidewire_departures", "Disconnected channels whose position the hub still keeps, so that they can resume.")
    public let departuresEvicted = Counter(
        "tidewire_departures_evicted_total",
        "Channel positions that the hub evicted early or did not keep, because there was no room. The clients "
            + "receive ChangesMissing when they return.")
    public let catchUpPasses = Counter(
        "tidewire_catch_up_passes_total", "Catch-up passes: reads of the event log for channels that are behind.")
    public let segmentsPassedOver = Counter(
        "tidewire_catch_up_segments_passed_over_total",
        "Segments of the event log that catch-up passes skipped, because they contain nothing for the channels of "
            + "the pass.")
    public let catchUps = Counter(
        "tidewire_catch_ups_total",
        "Times that a channel finished its catch-up: the hub has sent everything that the channel missed.")
    public let parked = CounterFamily<Parked>(
        "tidewire_channels_parked_total",
        "Times that the hub parked a channel at its position in the event log, to continue from there later. "
            + "Reasons: a slow socket, slow answers of PostgreSQL, a snapshot, or a commit that waits for a standby.")
    public let snapshots = CounterFamily<Snapshot>(
        "tidewire_snapshots_total", "Snapshots of tables that clients requested, by outcome.")
    public let snapshotsRunning = Gauge(
        "tidewire_snapshots_running", "Snapshots of tables that the hub is sending to clients now.")
    public let snapshotRows = Counter(
        "tidewire_snapshot_rows_total", "Rows of tables that were read for clients' snapshots.")
    public let snapshotReadSeconds = Histogram(
        "tidewire_snapshot_read_seconds",
        "Seconds that PostgreSQL took to read the rows of one snapshot.", unit: .seconds)
    public let replaySeconds = Histogram(
        "tidewire_replay_seconds", "Seconds from a request to replay earlier messages to its answer.", unit: .seconds)

    // MARK: Event log
    public let entriesAppended = Counter("tidewire_log_entries_appended_total", "Entries appended to the event log.")
    public let bytesAppended = Counter("tidewire_log_bytes_appended_total", "Bytes appended to the event log.")
    public let fsyncs = Counter("tidewire_log_fsyncs_total", "Flushes of the event log to the disk.")
    public let fsyncSeconds = Histogram(
        "tidewire_log_fsync_seconds", "Seconds that one flush of the event log to the disk took.", unit: .seconds)
    public let commitToDurableSeconds = Histogram(
        "tidewire_commit_to_durable_seconds",
        "Seconds from a transaction's commit to durability in the event log (by PostgreSQL's clock and the hub's).",
        unit: .seconds)
    public let diskStalls = Counter(
        "tidewire_disk_stalls_total", "Times that ingest stopped because the disk was full or failed.")
    public let scrubbedBytes = Counter(
        "tidewire_log_scrubbed_bytes_total",
        "Bytes of sealed event log segments that the hub read again in the background to find damage.")
    public let scrubDueSegments = Gauge(
        "tidewire_log_scrub_due_segments",
        "Sealed segments of the event log that the running hub has not checked for damage in the last day.")
    public let damagedSegments = Gauge(
        "tidewire_log_damaged_segments", "Sealed segments of the event log that failed their last check for damage.")
    public let segmentsRemoved = Counter(
        "tidewire_log_segments_removed_total", "Segments of the event log removed because they were past retention.")

    // MARK: Cluster
    public let clusterFeeding = Gauge(
        "tidewire_cluster_feeding",
        "1 while this node holds the replication slot and feeds the cluster's stream, else 0.")
    public let clusterRefused = Gauge(
        "tidewire_cluster_refused",
        "1 while this node does not take part in its cluster, because its log is not one that the stream can continue.")
    public let clusterTenure = Gauge(
        "tidewire_cluster_tenure",
        "Last tenure of the cluster that this node knows: the sequence of the message with which its feeder began.")
    public let clusterLagMessages = Gauge(
        "tidewire_cluster_lag_messages", "Messages of the cluster's stream that this node's log does not have yet.")
    public let clusterLagSeconds = Gauge(
        "tidewire_cluster_lag_seconds",
        "Seconds since this node's log last had every message of the cluster's stream that the node knew of; 0 if it has "
            + "every message.")
    public let clusterPeers = Gauge(
        "tidewire_cluster_peers", "Other nodes of the cluster that gave a sign of life in the last eight seconds.")
    public let clusterAcknowledgementSeconds = Histogram(
        "tidewire_cluster_acknowledgement_seconds",
        "Seconds from an append to the cluster's stream to its acknowledgement by the servers.", unit: .seconds)
    public let clusterLettersLost = Counter(
        "tidewire_cluster_letters_lost_total",
        "Letters with broadcasts of other nodes that did not arrive at this node. Clients that asked for it were told.")
    public let clusterReconnects = Counter(
        "tidewire_cluster_reconnects_total",
        "Times that this node lost the cluster's stream, or could not reach it, and tried again.")

    // MARK: Clients
    public let channels = Gauge("tidewire_channels", "Channels that are joined now.")
    public let subscriptions = Gauge(
        "tidewire_subscriptions", "Bindings of channels to tables, counted once for each binding and table.")
    public let channelEvents = CounterFamily<ChannelEvent>(
        "tidewire_channel_events_total", "Channels that were joined, refused, left or closed.")
    public let tokensRefused = CounterFamily<TokenRefusal>(
        "tidewire_tokens_refused_total", "Tokens of clients that the hub refused, by reason.")
    public let messagesReceived = Counter("tidewire_messages_received_total", "Messages received from clients.")
    public let messagesMalformed = Counter(
        "tidewire_messages_malformed_total", "Messages from clients that could not be read and were dropped.")
    public let changesMatched = Counter(
        "tidewire_changes_matched_total",
        "Changes that matched at least one subscription, counted on each socket loop.")
    public let broadcasts = Counter(
        "tidewire_broadcasts_total", "Messages that clients or the database sent to topics.")
    public let broadcastDeliveries = Counter(
        "tidewire_broadcast_deliveries_total", "Messages of topics handed to sockets, counted once for each channel.")
    public let presenceChanges = Counter(
        "tidewire_presence_changes_total", "Presence states that clients added, removed or changed.")
    public let presenceDeliveries = Counter(
        "tidewire_presence_deliveries_total", "Presence differences handed to sockets, counted once for each channel.")
    public let deliveries = Counter(
        "tidewire_deliveries_total", "Row changes handed to sockets, counted once for each channel.")
    public let feeds = Gauge(
        "tidewire_feeds", "HTTP requests for changes that the hub is answering now, page by page or live.")
    public let feedEvents = CounterFamily<FeedEvent>(
        "tidewire_feed_requests_total", "HTTP requests for changes, by event.")
    public let feedChanges = Counter(
        "tidewire_feed_changes_total", "Changes sent in answers to HTTP requests for changes.")
    public let drops = CounterFamily<DropReason>(
        "tidewire_drops_total",
        "Deliveries that the hub dropped, by reason. The hub told the client; about a limit only if the client set "
            + "the option limits.")
    public let commitToSocketSeconds = Histogram(
        "tidewire_commit_to_socket_seconds",
        "Seconds from a transaction's commit to its first delivery to a socket (by PostgreSQL's clock and the hub's).",
        unit: .seconds)
    public let tables: TableMeters
    public let tableDeliveries: TableFigures
    public let tableDelaySeconds: TableFigures
    public let tableLagSeconds: TableFigures
    public let readerPauses = Counter(
        "tidewire_reader_pauses_total",
        "Times that a socket loop paused reading the event log to wait for the catalog.")
    public let readerStalls = Counter(
        "tidewire_reader_stalls_total",
        "Times that a socket loop paused reading the event log, because too many deliveries waited for answers of "
            + "PostgreSQL.")
    public let filtersRested = Counter(
        "tidewire_filters_rested_total",
        "Times that the hub sent no changes to a connection's filtered channels for a while, because the filters "
            + "took more than their share of time.")
    public let heldBytes = Gauge("tidewire_held_bytes", "Bytes of deliveries that wait for answers of PostgreSQL.")
    public let recalls = CounterFamily<Recall>(
        "tidewire_recalls_total",
        "Deletes for which the hub needed the last version of the row from the event log, by place where it was found.")
    public let recallSeconds = Histogram(
        "tidewire_recall_seconds",
        "Seconds that one search of the event log for a deleted row's last version took.", unit: .seconds)
    public let generatedValues = Counter(
        "tidewire_generated_values_total", "Values of generated columns that the hub asked PostgreSQL to compute.")
    public let generatedFailures = Counter(
        "tidewire_generated_failures_total",
        "Values of generated columns that PostgreSQL could not compute. The hub leaves them out of changes.")
    // MARK: Bindings
    public let catalogReads = Counter(
        "tidewire_catalog_reads_total", "Times that the hub read the published tables from the catalog.")
    public let catalogReadSeconds = Histogram(
        "tidewire_catalog_read_seconds",
        "Seconds that one read of the published tables from the catalog took.", unit: .seconds)
    public let catalogTroubles = Counter(
        "tidewire_catalog_troubles_total", "Times that the catalog connection was lost or could not be opened.")
    public let policiesMisread = Counter(
        "tidewire_policies_misread_total",
        "Policies that PostgreSQL reads differently than the hub, so that PostgreSQL decides them itself.")
    public let bindingsResolved = Counter(
        "tidewire_bindings_resolved_total", "Bindings that the hub resolved with queries to PostgreSQL.")
    public let judgeQuestions = Counter(
        "tidewire_judge_questions_total",
        "Rows that the hub asked PostgreSQL about because it could not decide a filter.")
    public let judgeFailures = Counter(
        "tidewire_judge_failures_total",
        "Questions to PostgreSQL about a row and a filter that got no answer. The hub then does not deliver the row.")
    public let judgeRoundTripSeconds = Histogram(
        "tidewire_judge_round_trip_seconds",
        "Seconds that one round trip of questions to PostgreSQL about rows and filters took.", unit: .seconds)
    public let policyConnections = Gauge(
        "tidewire_policy_connections", "Open connections on which the hub asks PostgreSQL about rows under policies.")
    public let policyPairs = Counter(
        "tidewire_policy_pairs_total",
        "Pairs of a row and a subscriber that the hub asked PostgreSQL about under the row's policies.")
    public let policyFailures = Counter(
        "tidewire_policy_failures_total",
        "Pairs of a row and a subscriber that PostgreSQL gave no answer about. The hub then does not deliver the row.")
    public let policyStatementSeconds = Histogram(
        "tidewire_policy_statement_seconds",
        "Seconds that one statement about pairs of a row and a subscriber took.", unit: .seconds)
    public let policyWaits = Counter(
        "tidewire_policy_visibility_waits_total",
        "Times that the hub waited until a committed transaction was visible in PostgreSQL, to ask about its rows.")
    public let policyTerms = Counter(
        "tidewire_policy_terms_total",
        "Subscribers for whom PostgreSQL evaluated the parts of policies that depend only on claims.")
    public let channelProbes = Counter(
        "tidewire_channel_probes_total",
        "Times that the hub asked PostgreSQL for a client's rights in a private channel.")
    public let channelProbeFailures = Counter(
        "tidewire_channel_probe_failures_total",
        "Questions about a client's rights in a private channel that got no answer. They count as no rights.")
    public let channelProbeSeconds = Histogram(
        "tidewire_channel_probe_seconds",
        "Seconds from a question about a client's rights in a private channel to the answer.", unit: .seconds)
    public let shadowSamples = Counter(
        "tidewire_shadow_samples_total", "Decisions of the hub on rows that PostgreSQL checked.")
    public let shadowContradictions = Counter(
        "tidewire_shadow_contradictions_total",
        "Decisions of the hub on rows that PostgreSQL contradicted. From then on PostgreSQL alone decides the "
            + "policy. Never expected.")
    public let membershipSets = Gauge(
        "tidewire_membership_sets",
        "Membership sets of subscribers that the hub keeps current from the replication stream.")
    public let membershipRefills = Counter(
        "tidewire_membership_refills_total",
        "Membership sets that the hub had to read again: the stream did not show all changes to them, or the catalog has "
            + "changed since PostgreSQL refused them.")
    public let membershipFills = Counter(
        "tidewire_membership_fills_total", "Subscribers whose membership set the hub read from its table.")

    /// Name of the project; nil for the project that the hub's own settings describe.
    let tenant: String?

    /// Creates the metrics of a project.
    ///
    /// - Parameter tables: number of tables that have their own figures. All other tables share one set.
    public init(of tenant: String? = nil, tables limit: Int = Limits.measuredTables) {
        self.tenant = tenant
        let tables = TableMeters(limit: limit)
        self.tables = tables
        tableDeliveries = TableFigures(
            "tidewire_table_deliveries_total",
            "Row changes of each table handed to sockets, once for each channel; without changes put to PostgreSQL.",
            .deliveries, of: tables)
        tableDelaySeconds = TableFigures(
            "tidewire_table_commit_to_socket_seconds",
            "Seconds from a commit to the delivery of its changes to sockets, by table.", .delay, of: tables)
        tableLagSeconds = TableFigures(
            "tidewire_table_lag_seconds",
            "Seconds from commit to delivery of the last delivered changes, by table.", .lastDelay, of: tables)
    }

    /// All metrics of the project, in the order of their declarations above.
    var instruments: [any Instrument] { Mirror(reflecting: self).children.compactMap { $0.value as? any Instrument } }
}
