import Diagnostics
import Net

/// All settings, each declared once: its name, its allowed values, its meaning, and the type with which the program
/// reads it, by its property's name.
public struct AllSettings: Sendable {
    static let declared = AllSettings()

    // MARK: Database

    /// Address that is not marked secret as a whole, because it is shown without the secrets in it.
    public let databaseURL = TypedSetting(
        "database_url", .database, .connection,
        "The database whose changes are read.")

    public let policyDatabaseURL = TypedSetting(
        "policy_database_url", .database, .connection,
        "The same database with a login that can only become the client roles: row level security policies run as it. "
            + "Without it database_url's own login is taken, if it is no more than that.")

    public let publication = TypedSetting(
        "publication", .database, .identifier, default: "supabase_realtime",
        "The publication that says which tables are read.")

    public let createsPublication = TypedSetting(
        "publication_create", .database, .boolean, default: "on", "Create the publication if it is missing.")

    public let preparesDatabase = TypedSetting(
        "database_prepare", .database, .boolean, default: "off", aliases: ["SEED_SELF_HOST"],
        "At the start make what the database lacks, as 'tidewire db apply' does, as far as the login may.")

    public let slot = TypedSetting(
        "slot", .database, .slotName, default: "tidewire",
        "The replication slot that remembers how far we have read.")

    public let createsSlot = TypedSetting(
        "slot_create", .database, .boolean, default: "on", "Create the replication slot if it is missing.")

    public let streamsTransactionsInProgress = TypedSetting(
        "streaming", .database, .boolean, default: "on",
        "Ask the server to send large transactions while they are in progress.")

    // MARK: Event log

    public let dataDirectory = TypedSetting(
        "data_dir", .eventLog, .path, default: nil, "The directory of the event log.")

    public let segmentBytes = TypedSetting(
        "segment_size", .eventLog, .size(Int64(Limits.minimumSegmentBytes)...Int64(Limits.maximumSegmentBytes)),
        default: SizeText.write(Int64(Limits.defaultSegmentBytes)), "The size at which a new segment file is begun.")

    public let retentionAge = TypedSetting(
        "retention_age", .eventLog, .duration(.zero...Limits.maximumRetentionAge), default: "72h",
        "How long events are kept at most; 0 is without limit."
    ).unlessZero

    public let retentionBytes = TypedSetting(
        "retention_size", .eventLog, .size(0...Limits.maximumRetentionBytes), default: "10GB",
        "How many bytes of events are kept at most; 0 is without limit."
    ).unlessZero

    public let scrubRate = TypedSetting(
        "scrub_rate", .eventLog, .size(0...1 << 30), default: "8MB",
        "How many bytes of sealed segments are read again each second, to find damage early; 0 is none."
    ).unlessZero

    public let maskRules = TypedSetting(
        "mask_rules", .eventLog, .file,
        "A file that says which columns' values commands do not show, beside those with well-known names (email, password, "
            + "token, phone, address and others): one a line, such as users.diagnosis or !public.notes.email.")

    public let replayTargets = TypedSetting(
        "replay_targets", .eventLog, .text,
        "Where 'tidewire replay' may write though somebody follows that database or hub, or it cannot be told from the source: "
            + "host:port/database or host:port, separated by commas.")

    // MARK: Clients

    public let listen = TypedSetting(
        "listen", .clients, .address, default: "127.0.0.1:4000",
        "Where clients connect.")

    public let tlsCertificate = TypedSetting(
        "tls_certificate", .clients, .file,
        "The certificate with its chain, in PEM; with it clients connect by TLS only. Read again on SIGHUP.")

    public let tlsKey = TypedSetting("tls_key", .clients, .file, "The certificate's private key, in PEM.")

    public let loops = TypedSetting(
        "loops", .clients, .integer(0...Limits.maximumLoops), default: "0",
        "Threads that serve clients; 0 is one for each processor."
    ).unlessZero

    public let backend = TypedSetting(
        "io", .clients, .choice([("auto", SocketSettings.Backend.automatic), ("epoll", .epoll), ("io_uring", .ring)]),
        default: "auto",
        "How bytes are handed to the kernel; auto is io_uring where the kernel allows it.")

    public let compresses = TypedSetting(
        "deflate", .clients, .boolean, default: "off",
        "Compress messages for clients that offer permessage-deflate.")

    public let deletesAreStrict = TypedSetting(
        "delete_visibility", .clients, .choice([("strict", true), ("reference", false)]), default: "strict",
        "Who hears that a row of a table with row level security was deleted: strict is those who could see it, "
            + "reference is everybody who asked for deletes of the table, who is told the primary key.")

    public let catchUp = TypedSetting(
        "catch_up", .clients, .choice(CatchUpScope.allCases.map { ($0.rawValue, $0) }), default: "on",
        "Clients that come back after a cut are told what they missed, without asking for it: on is those with a login "
            + "(session_id in the token) or a client_id in their address, client_id only the latter. All others that come "
            + "back are told that changes may be missing.")

    public let catchUpGrace = TypedSetting(
        "catch_up_grace", .clients, .duration(.seconds(1)...Limits.maximumDepartureGrace),
        default: DurationText.write(Limits.departureGrace),
        "How long a client may be away for that.")

    public let positionInterval = TypedSetting(
        "position_interval", .clients, .duration(.seconds(1)...Limits.maximumPositionInterval),
        default: DurationText.write(Limits.positionInterval),
        "A channel that asks for its position and hears nothing for so long is told where it stands, if the event log has "
            + "moved on: so that what it would come back to is not past retention.")

    public let drainTime = TypedSetting(
        "drain_time", .clients, .duration(.zero...Limits.maximumDrainTime),
        default: DurationText.write(Limits.drainTime),
        "When the hub is told to end it sends its clients away over this time, so that they do not come back all at once; "
            + "few need less.")

    // MARK: Tokens

    public let jwtSecret = TypedSetting(
        "jwt_secret", .tokens, .secret, aliases: ["JWT_SECRET", "API_JWT_SECRET"],
        "The secret that clients' tokens are signed with.")

    public let keySet = TypedSetting(
        "jwks", .tokens, .inlineOrFile("a JSON Web Key Set", begins: "{"), aliases: ["JWT_JWKS", "API_JWT_JWKS"],
        "The public keys that clients' tokens are signed with, in a file or as they are. Files are read again on SIGHUP."
    )

    public let claimExpectations = TypedSetting(
        "jwt_claim_validators", .tokens, .claimValues, default: "{}", aliases: ["JWT_CLAIM_VALIDATORS"],
        "Values that claims must have in tokens that have these claims.")

    public let allowedRoles = TypedSetting(
        "allowed_roles", .tokens, .text,
        "The roles that clients' tokens may name, separated by commas. Without it, all but superusers, roles that may "
            + "replicate, pg_…, the hub's own logins, and those that bypass row level security (but for bypass_roles).")

    public let bypassRoles = TypedSetting(
        "bypass_roles", .tokens, .text, default: "service_role",
        "The roles of clients' tokens that may bypass row level security, separated by commas; \"none\" for none.")

    public let apiKeys = TypedSetting(
        "api_keys", .tokens, .inlineOrFile("KEY = ROLE, one a line or separated by commas", begins: "sb_"),
        "What opaque API keys (sb_publishable_…, sb_secret_…) stand for: a role, or a token to be taken in their place."
    )

    public let operatorSecret = TypedSetting(
        "operator_jwt_secret", .tokens, .secret, aliases: ["API_JWT_SECRET"],
        "The secret of operators' tokens for /api/tenants, which is closed without one.")

    public let nextOperatorSecret = TypedSetting(
        "operator_jwt_secret_next", .tokens, .secret, aliases: ["API_JWT_SECRET_NEXT"],
        "A second such secret, while operators change from one to the other.")

    public let operatorBlocklist = TypedSetting(
        "operator_token_blocklist", .tokens, .secret, aliases: ["API_TOKEN_BLOCKLIST"],
        "Operators' tokens that are refused though they are signed, separated by commas.")

    public let metricsSecret = TypedSetting(
        "metrics_jwt_secret", .tokens, .secret, aliases: ["METRICS_JWT_SECRET"],
        "The secret of tokens for /metrics, which is open to all without one.")

    public let metricsBlocklist = TypedSetting(
        "metrics_token_blocklist", .tokens, .secret, aliases: ["METRICS_TOKEN_BLOCKLIST"],
        "Tokens for /metrics that are refused though they are signed, separated by commas.")

    // MARK: Projects

    public let projectName = TypedSetting(
        "project_name", .projects, .text, default: "realtime-dev", aliases: ["SELF_HOST_TENANT_NAME"],
        "The name of the project that these settings describe: the first part of the Host header where there are others."
    )

    public let unknownHosts = TypedSetting(
        "unknown_hosts", .projects, .choice(UnknownHosts.allCases.map { ($0.rawValue, $0) }), default: "single",
        "Who answers for host names that are no project's: single is the only project there is, main the one that these "
            + "settings describe, whatever others there are; refuse is nobody.")

    public let projectKey = TypedSetting(
        "project_key", .projects, .secret, aliases: ["DB_ENC_KEY", "DB_ENC_KEY_GCM"],
        "Any text: the secrets of stored projects are encrypted with it. Without it a key is made in data_dir.")

    public let region = TypedSetting(
        "region", .projects, .text, default: "us-east-1", aliases: ["REGION"],
        "The region that the health of projects tells; a name and no more.")

    public let privateOnly = TypedSetting(
        "private_only", .projects, .boolean, default: "off", "Refuse channels that are not private.")

    public let presenceEnabled = TypedSetting(
        "presence_enabled", .projects, .boolean, default: "off",
        "Send who is present to every channel, not only to those that ask for it.")

    public let keepsPresenceTimeline = TypedSetting(
        "presence_timeline", .projects, .boolean, default: "off",
        "Keep in the event log who came, changed and left.")

    public let ledger = TypedSetting(
        "ledger", .projects, .choice(LedgerScope.allCases.map { ($0.rawValue, $0) }), default: "ranges",
        "Keep in the event log what happens to channels, for 'tidewire who': ranges is who joined what and from where to "
            + "where, who was refused and who was told of a loss; exceptions only the latter two; full also each delivery."
    )

    public let ledgerClaims = TypedSetting(
        "ledger_claims", .projects, .text, default: "sub,role,session_id,aal,is_anonymous,app_metadata",
        "The claims of tokens that are kept with it; others, and tokens, never are.")

    public let replaysPublicChannels = TypedSetting(
        "replay_public", .projects, .boolean, default: "off",
        "Let public channels replay messages too, not only private ones.")

    public let replayLimit = TypedSetting(
        "replay_limit", .projects, .integer(1...Int64(Limits.maximumReplayedMessages)),
        default: "25", "Messages that a join may replay at most.")

    public let messagesHours = TypedSetting(
        "messages_retention_hours", .projects, .integer(1...Limits.maximumMessagesRetentionHours),
        default: String(Limits.messagesRetentionHours), "Hours that rows of realtime.messages are kept.")

    // MARK: Limits for clients

    public let maximumConnections = TypedSetting(
        "max_connections", .limits, .integer(1...Limits.maximumConnections), default: "100000",
        aliases: ["MAX_CONNECTIONS"], "Clients that are connected at the same time, of all projects.")

    public let maximumConcurrentUsers = TypedSetting(
        "max_concurrent_users", .limits, .integer(0...Limits.maximumConnections),
        default: "10000", aliases: ["TENANT_MAX_CONCURRENT_USERS"],
        "Clients of the project that have joined a channel, at the same time; 0 is without limit."
    ).unlessZero

    public let channelsPerClient = TypedSetting(
        "max_channels_per_client", .limits, .integer(1...Limits.maximumChannelsPerClient),
        default: "100", aliases: ["TENANT_MAX_CHANNELS_PER_CLIENT"],
        "Channels that one connection may join.")

    // Rates are means over some seconds. The reference server's own rates (100 events and 100 joins a second) close the
    // channels of a small application.

    public let joinsPerSecond = TypedSetting(
        "max_joins_per_second", .limits, .integer(0...Limits.maximumRate), default: "2500",
        aliases: ["TENANT_MAX_JOINS_PER_SECOND"],
        "Joins of the project in a second, on average; 0 is without limit."
    ).unlessZero

    public let eventsPerSecond = TypedSetting(
        "max_events_per_second", .limits, .integer(0...Limits.maximumRate), default: "10000",
        aliases: ["TENANT_MAX_EVENTS_PER_SECOND"],
        "Messages that the project's clients send and receive in a second, on average; 0 is without limit."
    ).unlessZero

    public let presenceEventsPerSecond = TypedSetting(
        "max_presence_events_per_second", .limits, .integer(0...Limits.maximumRate),
        default: "10000",
        "Presence messages of the project in a second, on average; 0 is without limit."
    ).unlessZero

    public let clientPresenceEvents = TypedSetting(
        "max_client_presence_events_per_window", .limits, .integer(0...Limits.maximumRate),
        default: "5", aliases: ["CLIENT_PRESENCE_MAX_CALLS"],
        "Presence messages that one channel may send in client_presence_window; 0 is without limit."
    ).unlessZero

    public let clientPresenceWindow = TypedSetting(
        "client_presence_window", .limits, .duration(.milliseconds(1)...Limits.maximumClientPresenceWindow),
        default: "30s", aliases: ["CLIENT_PRESENCE_WINDOW_MS"],
        "How long that window is.")

    public let payloadKilobytes = TypedSetting(
        "max_payload_size", .limits, .integer(1...Limits.maximumPayloadKilobytes),
        default: "3000",
        "The largest payload of a broadcast or presence, in kB of 1000 bytes; 500 bytes more are let pass.")

    public let maximumRequestBodyBytes = TypedSetting(
        "max_request_body", .limits, .size(1 << 10...Int64(Limits.largestRequestBodyBytes)),
        default: SizeText.write(Int64(Limits.maximumRequestBodyBytes)), "The largest body of an HTTP request.")

    public let frameBytes = TypedSetting(
        "max_frame_size", .limits, .size(64 << 10...Int64(Limits.maximumClientMessageBytes)),
        default: SizeText.write(Int64(Limits.clientMessageBytes)), "The largest message of a client.")

    public let recordBytes = TypedSetting(
        "max_record_bytes", .limits, .size(1 << 10...Int64(Limits.maximumPieceBytes / 2)),
        default: SizeText.write(Int64(Limits.maximumChangeBodyBytes)),
        "The largest change that is sent whole; a larger one is told without its large values.")

    public let outboxBytes = TypedSetting(
        "outbox_size", .limits, .size(64 << 10...Int64(Limits.outboxTotalBytes)),
        default: SizeText.write(Int64(Limits.outboxBytes)),
        "What may wait for one client that reads too slowly, before it is disconnected. Changes wait in the log.")

    public let outboxAge = TypedSetting(
        "outbox_age", .limits, .duration(.seconds(1)...Duration.seconds(600)),
        default: DurationText.write(Limits.outboxAge), "How long such a client may take nothing at all.")

    public let outboxLag = TypedSetting(
        "outbox_lag", .limits, .integer(0...Limits.maximumOutboxLag), default: "0",
        "How many changes such a client may be behind the event log's end; 0 is without limit but the log's retention."
    ).unlessZero

    public let idleTimeout = TypedSetting(
        "idle_timeout", .limits, .duration(.zero...Duration.seconds(86_400)),
        default: DurationText.write(Limits.socketIdleLimit),
        "How long a client may be silent before it is disconnected; 0 is without limit."
    ).unlessZero

    public let idleChannelTimeout = TypedSetting(
        "idle_channel_timeout", .limits, .duration(.zero...Duration.seconds(86_400)),
        default: DurationText.write(Limits.idleChannelTimeout), aliases: ["NO_CHANNEL_TIMEOUT_IN_MS"],
        "How long a client may have no channel before it is disconnected; 0 is without limit."
    ).unlessZero

    public let connectErrorBackoff = TypedSetting(
        "connect_error_backoff", .limits, .duration(.zero...Limits.maximumErrorBackoff),
        default: DurationText.write(Limits.connectErrorBackoff), aliases: ["CONNECT_ERROR_BACKOFF_MS"],
        "How long a client that may not connect waits for the answer.")

    public let channelErrorBackoff = TypedSetting(
        "channel_error_backoff", .limits, .duration(.zero...Limits.maximumErrorBackoff),
        default: DurationText.write(Limits.channelErrorBackoff), aliases: ["CHANNEL_ERROR_BACKOFF_MS"],
        "How long a client that may not join a channel waits for the answer.")

    // MARK: Diagnostics

    public let measuredTables = TypedSetting(
        "metrics_tables", .diagnostics, .integer(0...Limits.maximumMeasuredTables),
        default: "\(Limits.measuredTables)",
        "How many tables of a project have metrics of their own; all others are counted together, as other.")

    public let logLevel = TypedSetting(
        "log_level", .diagnostics,
        .choice(
            Log.Level.allCases.map { ($0.rawValue, $0) },
            synonyms: [
                // Words that LOG_LEVEL of the reference container may have.
                "warn": "warning", "notice": "info", "critical": "error", "alert": "error", "emergency": "error",
            ]),
        default: "info", aliases: ["LOG_LEVEL"], "The least important lines that are logged.")

    public let logFormat = TypedSetting(
        "log_format", .diagnostics, .choice(Log.Format.allCases.map { ($0.rawValue, $0) }), default: "text",
        "How log lines are written.")
}
