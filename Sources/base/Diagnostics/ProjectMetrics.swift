/// Metrics of one project. Each name and meaning is here once.
///
/// The settings' own project has no project label, so that a hub without other projects looks as it always did. Other
/// projects have their names as the label `tenant`. The code that starts a project makes one instance and passes it on.
public final class ProjectMetrics: Sendable {
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
        /// The server's `wal_level` does not allow logical replication.
        case walLevel = "wal_level"
        /// The server sent nothing for too long.
        case timeout
        /// The hub stopped reading because the disk accepted no more data.
        case diskStall = "disk_stall"
        /// An operator paused the stream.
        case paused
        case protocolError = "protocol_error"
        case other

        public static let labelName = "reason"
    }

    public enum ChannelEvent: String, MetricLabel {
        case joined, refused, left, closed

        public static let labelName = "event"
    }

    public enum DropReason: String, MetricLabel {
        /// The socket did not take the data sent to it; the hub closed it with a reason to come back.
        case slowConsumer = "slow_consumer"
        /// PostgreSQL did not answer a question; the client was told.
        case unanswered
        /// Row level security is active for the role; the client was told when it subscribed.
        case rowSecurity = "row_security"
        /// A delete lacks a value that a filter or a policy needs, and the event log did not have the row; the client
        /// was told when it subscribed that this may happen.
        case absentValue = "absent_value"
        /// A filter would have taken more time than its allowance; the client was told.
        case tooMuchWork = "too_much_work"
        /// A project's rate was exceeded; the channel was closed and told.
        case rateLimit = "rate_limit"
        /// The payload exceeded the limit.
        case tooLarge = "too_large"
        /// The message was sent on one loop while another loop was far behind.
        case backlog
        /// The sender may not write to the private channel.
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
        /// Clients may not use the role here.
        case wrongRole = "wrong_role"
        /// The token has no `role` or no `exp`.
        case claimsMissing = "claims_missing"

        public static let labelName = "reason"
    }

    public enum FeedEvent: String, MetricLabel {
        case begun, refused
        /// The hub cannot continue from the requested position: the client must fetch its data again.
        case behind
        /// The answer ended early, for example because its token expired, the hub stopped or history broke off.
        case cut

        public static let labelName = "event"
    }

    /// Reason why a channel was parked: it leaves the live follower and continues from the log later.
    public enum Parked: String, MetricLabel {
        /// The socket took less than it was sent.
        case socket
        /// PostgreSQL answered questions about filters and policies more slowly than changes came.
        case answers
        /// The channel first receives a snapshot of the existing rows.
        case snapshot
        /// A commit on a table that the channel listens to is not visible in PostgreSQL yet.
        case standby

        public static let labelName = "reason"
    }

    /// Place where the last version of a deleted row was found.
    public enum Recall: String, MetricLabel {
        case memory
        case log
        case missing

        public static let labelName = "found"
    }

    /// Source of the answer to a request for messages that were sent before.
    public enum Replay: String, MetricLabel {
        case log
        /// Messages from the log and the table, because the log does not reach back far enough.
        case table
        case failed

        public static let labelName = "answer"
    }

    /// Outcome of a request to resume from a position.
    public enum Resume: String, MetricLabel {
        case recovered
        case olderThanRetention = "older_than_retention"
        case otherEpoch = "epoch_changed"
        case unknown = "unknown_position"
        case unreadable = "log_unreadable"

        public static let labelName = "outcome"
    }

    /// Outcome of a request to begin with the existing rows.
    public enum Snapshot: String, MetricLabel {
        case complete
        /// The client left, or its token ended.
        case cancelled
        /// The client was told why.
        case failed

        public static let labelName = "outcome"
    }

    // MARK: State
    public let running = Gauge(
        "tidewire_project_running",
        "1 while the project runs, 0 while it starts or ends or cannot be started.")
    public let replicationConnected = Gauge(
        "tidewire_replication_connected", "1 while changes are streaming from PostgreSQL, else 0.")
    public let receivedLSN = Gauge("tidewire_received_lsn", "Last WAL position received from PostgreSQL, as a number.")
    public let confirmedLSN = Gauge(
        "tidewire_confirmed_lsn",
        "Last WAL position confirmed to PostgreSQL, after it was durable in the event log, as a number.")
    public let slotLagBytes = Gauge(
        "tidewire_slot_lag_bytes",
        "Bytes of WAL that PostgreSQL has written beyond the position that is confirmed for the slot.")
    public let slotLagSeconds = Gauge(
        "tidewire_slot_lag_seconds",
        "Seconds since the event log had everything that PostgreSQL had committed; at least so many.")
    public let slotKeptBytes = Gauge(
        "tidewire_slot_kept_bytes",
        "Bytes of WAL that PostgreSQL keeps because of the slot, from the slot's restart position on.")
    public let slotLimitBytes = Gauge(
        "tidewire_slot_limit_bytes",
        "Bytes of WAL that PostgreSQL keeps for the slot before it lets go of the slot (max_slot_wal_keep_size); 0 without a limit."
    )
    public let dataFreeBytes = Gauge(
        "tidewire_data_free_bytes", "Room left on the disk of the event log, in bytes.")
    public let logFirstOffset = Gauge("tidewire_log_first_offset", "Oldest offset that the event log still holds.")
    public let logEndOffset = Gauge("tidewire_log_end_offset", "Offset that the next change in the event log will get.")
    public let slowestReaderOffset = Gauge(
        "tidewire_slowest_reader_offset",
        "Offset in the event log of the channel that is furthest behind; the log's end where all have come there.")
    public let logUnreadable = Gauge(
        "tidewire_log_unreadable",
        "Socket loops whose clients wait because the event log cannot be read there for now; 0 when all is well.")
    public let logSizeBytes = Gauge("tidewire_log_size_bytes", "Bytes that the segments of the event log take.")

    public let catalogConnected = Gauge(
        "tidewire_catalog_connected", "1 while the catalog can be asked what bindings mean, else 0.")
    public let catalogVersion = Gauge(
        "tidewire_catalog_version", "Changes of tables or rights that the hub has seen since it started.")
    public let judgeConnected = Gauge(
        "tidewire_judge_connected", "1 while PostgreSQL can be asked about rows that a filter leaves open, else 0.")

    // MARK: Ingest
    public let transactionsIngested = Counter(
        "tidewire_ingest_transactions_total", "Transactions received from PostgreSQL by replication.")
    public let changesIngested = CounterFamily<Operation>(
        "tidewire_ingest_changes_total", "Changes of rows and messages received from PostgreSQL, by operation.")
    public let bytesIngested = Counter(
        "tidewire_ingest_bytes_total", "Bytes of logical replication messages received from PostgreSQL.")
    public let transactionsSkipped = Counter(
        "tidewire_ingest_transactions_skipped_total",
        "Transactions that the slot sent again and the event log already held."
    )
    public let reconnects = CounterFamily<ReconnectReason>(
        "tidewire_replication_reconnects_total",
        "Attempts to connect to the replication stream again, by what made them necessary.")
    public let gaps = Counter(
        "tidewire_gaps_total", "Times that changes were lost for certain or possibly, each marked in the event log.")
    public let presenceMarksDropped = Counter(
        "tidewire_presence_marks_dropped_total",
        "Joins and leaves of presences that are not in the event log because there was no room for them in time.")
    public let ledgerNotesDropped = Counter(
        "tidewire_ledger_notes_dropped_total",
        "Events in the life of channels that are not in the event log because there was no room for them in time.")
    public let messagesSkipped = Counter(
        "tidewire_messages_skipped_total",
        "Rows of realtime.messages that could not be broadcast, for want of an event, a payload or something else.")
    public let replays = CounterFamily<Replay>(
        "tidewire_replays_total", "Requests of clients for messages sent before, by how they were answered.")
    public let resumes = CounterFamily<Resume>(
        "tidewire_resumes_total", "Joins that asked to go on from a position of the event log, by what came of it.")
    public let returns = CounterFamily<Resume>(
        "tidewire_returns_total",
        "Channels whose clients came back after a cut and asked for nothing, by whether they could go on where they were."
    )
    public let departures = Gauge(
        "tidewire_departures", "Channels whose clients are gone and may still come back to where they were.")
    public let departuresEvicted = Counter(
        "tidewire_departures_evicted_total",
        "Channels whose place was forgotten early, or not kept, because there was no room: their clients are told ChangesMissing "
            + "when they come back.")
    public let catchUpPasses = Counter(
        "tidewire_catch_up_passes_total", "Passes over the event log for channels that came back.")
    public let segmentsPassedOver = Counter(
        "tidewire_catch_up_segments_passed_over_total",
        "Segments of the event log that passes for channels that came back left out, as nothing in them is for these channels."
    )
    public let catchUps = Counter(
        "tidewire_catch_ups_total", "Channels that came back and were told all that they had missed.")
    public let parked = CounterFamily<Parked>(
        "tidewire_channels_parked_total",
        "Times that a channel was left where it was in the event log, to go on from there: a slow client's, a snapshot's, or one "
            + "of a table with a commit that waits for a standby.")
    public let snapshots = CounterFamily<Snapshot>(
        "tidewire_snapshots_total", "Snapshots of tables that clients asked to begin with, by what came of them.")
    public let snapshotsRunning = Gauge(
        "tidewire_snapshots_running", "Snapshots of tables that are being told to clients now.")
    public let snapshotRows = Counter(
        "tidewire_snapshot_rows_total", "Rows of tables that were read for clients' snapshots.")
    public let snapshotReadSeconds = Histogram(
        "tidewire_snapshot_read_seconds",
        "Seconds that PostgreSQL took to read the rows of one snapshot.", unit: .seconds)
    public let replaySeconds = Histogram(
        "tidewire_replay_seconds",
        "Seconds that one request for messages sent before waited for its answer.", unit: .seconds)

    // MARK: Event log
    public let entriesAppended = Counter("tidewire_log_entries_appended_total", "Entries appended to the event log.")
    public let bytesAppended = Counter("tidewire_log_bytes_appended_total", "Bytes appended to the event log.")
    public let fsyncs = Counter("tidewire_log_fsyncs_total", "Flushes of the event log to the disk.")
    public let fsyncSeconds = Histogram(
        "tidewire_log_fsync_seconds", "Seconds that one flush of the event log to the disk took.", unit: .seconds)
    public let commitToDurableSeconds = Histogram(
        "tidewire_commit_to_durable_seconds",
        "Seconds from a transaction's commit in PostgreSQL until it was durable in the event log (by the clocks of both).",
        unit: .seconds)
    public let diskStalls = Counter(
        "tidewire_disk_stalls_total", "Times that ingest stopped because the disk was full or failed.")
    public let scrubbedBytes = Counter(
        "tidewire_log_scrubbed_bytes_total",
        "Bytes of the event log's sealed segments that were read again in the background to find damage.")
    public let scrubDueSegments = Gauge(
        "tidewire_log_scrub_due_segments",
        "Sealed segments of the event log that were not read again in the last day, nor since the hub started.")
    public let damagedSegments = Gauge(
        "tidewire_log_damaged_segments",
        "Sealed segments of the event log that did not read back when they were last looked at.")
    public let segmentsRemoved = Counter(
        "tidewire_log_segments_removed_total", "Segments of the event log removed because they were past retention.")

    // MARK: Clients
    public let channels = Gauge("tidewire_channels", "Channels that are joined now.")
    public let subscriptions = Gauge(
        "tidewire_subscriptions", "Bindings of channels to tables, one for each binding and table.")
    public let channelEvents = CounterFamily<ChannelEvent>(
        "tidewire_channel_events_total", "Channels that were joined, refused, left or closed.")
    public let tokensRefused = CounterFamily<TokenRefusal>(
        "tidewire_tokens_refused_total", "Tokens of clients that were refused, by what was wrong with them.")
    public let messagesReceived = Counter("tidewire_messages_received_total", "Messages received from clients.")
    public let messagesMalformed = Counter(
        "tidewire_messages_malformed_total", "Messages from clients that could not be read and were dropped.")
    public let changesMatched = Counter(
        "tidewire_changes_matched_total", "Changes that at least one subscription wanted, counted on each loop.")
    public let broadcasts = Counter(
        "tidewire_broadcasts_total", "Messages that were said to a topic, by clients or the database.")
    public let broadcastDeliveries = Counter(
        "tidewire_broadcast_deliveries_total", "Messages of topics handed to a socket, one for each channel.")
    public let presenceChanges = Counter("tidewire_presence_changes_total", "Presences that came, went or changed.")
    public let presenceDeliveries = Counter(
        "tidewire_presence_deliveries_total", "Differences in presence handed to a socket, one for each channel.")
    public let deliveries = Counter("tidewire_deliveries_total", "Changes handed to a socket, one for each channel.")
    public let feeds = Gauge(
        "tidewire_feeds", "Requests for changes over HTTP that are being answered now, page by page or live.")
    public let feedEvents = CounterFamily<FeedEvent>(
        "tidewire_feed_requests_total", "Requests for changes over HTTP, by what happened to them.")
    public let feedChanges = Counter(
        "tidewire_feed_changes_total", "Changes told in answers to requests for changes over HTTP.")
    public let drops = CounterFamily<DropReason>(
        "tidewire_drops_total",
        "Deliveries that were not made, by reason. The client was told; of a limit, if it set the option limits.")
    public let commitToSocketSeconds = Histogram(
        "tidewire_commit_to_socket_seconds",
        "Seconds from a transaction's commit in PostgreSQL to its first delivery to a socket (by the clocks of both).",
        unit: .seconds)
    public let tables: TableMeters
    public let tableDeliveries: TableFigures
    public let tableDelaySeconds: TableFigures
    public let tableLagSeconds: TableFigures
    public let readerPauses = Counter(
        "tidewire_reader_pauses_total", "Times a loop waited for the catalog before it went on reading the log.")
    public let readerStalls = Counter(
        "tidewire_reader_stalls_total",
        "Times a loop waited for clients to take what they had before it went on reading the log.")
    public let filtersRested = Counter(
        "tidewire_filters_rested_total",
        "Times a connection was left out of changes for a while, because its filters took more time than their share.")
    public let heldBytes = Gauge(
        "tidewire_held_bytes", "Bytes of deliveries that wait for PostgreSQL's answer to a filter.")
    public let recalls = CounterFamily<Recall>(
        "tidewire_recalls_total",
        "Deletes judged by the last version of the row in the event log, by where that version was found.")
    public let recallSeconds = Histogram(
        "tidewire_recall_seconds",
        "Seconds that one search of the event log for the last version of a deleted row took.", unit: .seconds)
    public let generatedValues = Counter(
        "tidewire_generated_values_total", "Values of generated columns that PostgreSQL was asked to compute.")
    public let generatedFailures = Counter(
        "tidewire_generated_failures_total",
        "Values of generated columns that PostgreSQL could not compute; they are left out of changes.")
    // MARK: Bindings
    public let catalogReads = Counter(
        "tidewire_catalog_reads_total", "Times that the published tables were read from the catalog.")
    public let catalogReadSeconds = Histogram(
        "tidewire_catalog_read_seconds",
        "Seconds that one reading of the published tables from the catalog took.", unit: .seconds)
    public let catalogTroubles = Counter(
        "tidewire_catalog_troubles_total", "Times that the catalog's connection was lost or could not be made.")
    public let policiesMisread = Counter(
        "tidewire_policies_misread_total",
        "Policies that PostgreSQL reads otherwise than the hub did, and decides on itself.")
    public let bindingsResolved = Counter(
        "tidewire_bindings_resolved_total", "Bindings that were resolved with the database's help.")
    public let judgeQuestions = Counter(
        "tidewire_judge_questions_total",
        "Rows that PostgreSQL was asked about because the hub could not decide a filter.")
    public let judgeFailures = Counter(
        "tidewire_judge_failures_total",
        "Questions to PostgreSQL about a row and a filter that got no answer; the row is not delivered then.")
    public let judgeRoundTripSeconds = Histogram(
        "tidewire_judge_round_trip_seconds",
        "Seconds that one round trip of questions to PostgreSQL about rows and filters took.", unit: .seconds)
    public let policyConnections = Gauge(
        "tidewire_policy_connections", "Connections on which PostgreSQL can be asked about rows under policies.")
    public let policyPairs = Counter(
        "tidewire_policy_pairs_total",
        "Pairs of a row and a subscriber that PostgreSQL was asked about under the row's policies.")
    public let policyFailures = Counter(
        "tidewire_policy_failures_total",
        "Pairs of a row and a subscriber that PostgreSQL gave no answer about; the row is not delivered then.")
    public let policyStatementSeconds = Histogram(
        "tidewire_policy_statement_seconds",
        "Seconds that one statement about pairs of a row and a subscriber took.", unit: .seconds)
    public let policyWaits = Counter(
        "tidewire_policy_visibility_waits_total",
        "Times that a committed transaction could not be seen yet by those who asked about its rows.")
    public let policyTerms = Counter(
        "tidewire_policy_terms_total", "Subscribers for whom PostgreSQL evaluated what depends on claims alone.")
    public let channelProbes = Counter(
        "tidewire_channel_probes_total", "Times that somebody's rights in a private channel were asked for.")
    public let channelProbeFailures = Counter(
        "tidewire_channel_probe_failures_total",
        "Questions about somebody's rights in a private channel that got no answer; they count as no rights.")
    public let channelProbeSeconds = Histogram(
        "tidewire_channel_probe_seconds",
        "Seconds from a question about somebody's rights in a private channel to the answer.", unit: .seconds)
    public let shadowSamples = Counter(
        "tidewire_shadow_samples_total", "Decisions on rows that PostgreSQL was asked to confirm.")
    public let shadowContradictions = Counter(
        "tidewire_shadow_contradictions_total",
        "Decisions on rows that PostgreSQL contradicted when asked: the policy is left to PostgreSQL from there on. Never expected."
    )
    public let membershipSets = Gauge(
        "tidewire_membership_sets", "Subscribers' memberships that are kept from the stream.")
    public let membershipRefills = Counter(
        "tidewire_membership_refills_total",
        "Memberships that had to be read anew, because the stream did not say all that happened to them.")
    public let membershipFills = Counter(
        "tidewire_membership_fills_total", "Subscribers whose memberships were read from their table.")

    /// Name of the project; nil for the settings' own project.
    let tenant: String?

    /// - Parameter tables: number of tables with figures of their own; all other tables share one set.
    public init(of tenant: String? = nil, tables limit: Int = Limits.measuredTables) {
        self.tenant = tenant
        let tables = TableMeters(limit: limit)
        self.tables = tables
        tableDeliveries = TableFigures(
            "tidewire_table_deliveries_total",
            "Changes of each table handed to a socket, one for each channel; without changes that PostgreSQL was asked about.",
            .deliveries, of: tables)
        tableDelaySeconds = TableFigures(
            "tidewire_table_commit_to_socket_seconds",
            "Seconds from a commit to the delivery of its changes of a table to sockets, by table.", .delay, of: tables)
        tableLagSeconds = TableFigures(
            "tidewire_table_lag_seconds",
            "Seconds from commit to delivery of what was delivered last of each table.", .lastDelay, of: tables)
    }

    /// All metrics of the project, in the order of their declarations above.
    var instruments: [any Instrument] { Mirror(reflecting: self).children.compactMap { $0.value as? any Instrument } }
}
