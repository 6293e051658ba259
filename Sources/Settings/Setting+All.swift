import Diagnostics

/// Every setting there is.
extension Setting {
    public static let all: [Setting] = [
        .databaseURL, .policyDatabaseURL, .publication, .publicationCreate, .slot, .slotCreate, .streaming,
        .dataDirectory, .segmentSize, .retentionAge, .retentionSize,
        .listen, .tlsCertificate, .tlsKey, .loops, .io, .deflate, .deleteVisibility,
        .jwtSecret, .jwks, .claimValidators, .allowedRoles, .bypassRoles, .apiKeys, .operatorSecret,
        .nextOperatorSecret, .operatorBlocklist,
        .metricsSecret, .metricsBlocklist,
        .projectName, .projectKey, .region, .privateOnly, .presenceEnabled, .presenceTimeline, .replayPublic,
        .replayLimit, .messagesRetention,
        .maximumConnections, .maximumConcurrentUsers, .channelsPerClient, .joinsPerSecond, .eventsPerSecond,
        .presenceEventsPerSecond, .clientPresenceEvents, .clientPresenceWindow, .payloadSize, .requestBodySize,
        .frameSize, .recordSize, .outboxSize, .outboxAge, .idleTimeout, .idleChannelTimeout,
        .connectErrorBackoff, .channelErrorBackoff,
        .logLevel, .logFormat,
    ]

    // MARK: Database

    /// Not marked secret as a whole: it is shown, without the secrets in it.
    public static let databaseURL = Setting(
        "database_url", .database, .connection, aliases: ["DB_HOST", "DB_PORT", "DB_USER", "DB_PASSWORD", "DB_NAME"],
        "The database whose changes are read.")

    public static let policyDatabaseURL = Setting(
        "policy_database_url", .database, .connection,
        "The same database with a login that can only become the client roles: row level security policies run as it. "
            + "Without it database_url's own login is taken, if it is no more than that.")

    public static let publication = Setting(
        "publication", .database, .identifier, default: "supabase_realtime",
        "The publication that says which tables are read.")

    public static let publicationCreate = Setting(
        "publication_create", .database, .boolean, default: "on", "Create the publication if it is missing.")

    public static let slot = Setting(
        "slot", .database, .slotName, default: "tidewire", aliases: ["SLOT_NAME_SUFFIX"],
        "The replication slot that remembers how far we have read.")

    public static let slotCreate = Setting(
        "slot_create", .database, .boolean, default: "on", "Create the replication slot if it is missing.")

    public static let streaming = Setting(
        "streaming", .database, .boolean, default: "on",
        "Ask the server to send large transactions while they are in progress.")

    // MARK: Event log

    public static let dataDirectory = Setting(
        "data_dir", .eventLog, .path, "The directory of the event log.")

    public static let segmentSize = Setting(
        "segment_size", .eventLog, .size(Int64(Limits.minimumSegmentBytes)...Int64(Limits.maximumSegmentBytes)),
        default: SizeText.write(Int64(Limits.defaultSegmentBytes)), "The size at which a new segment file is begun.")

    public static let retentionAge = Setting(
        "retention_age", .eventLog, .duration(.zero...Limits.maximumRetentionAge), default: "72h",
        "How long events are kept at most; 0 is without limit.")

    public static let retentionSize = Setting(
        "retention_size", .eventLog, .size(0...Limits.maximumRetentionBytes), default: "10GB",
        "How many bytes of events are kept at most; 0 is without limit.")

    // MARK: Clients

    public static let listen = Setting(
        "listen", .clients, .address, default: "127.0.0.1:4000", aliases: ["PORT"],
        "Where clients connect.")

    public static let deleteVisibility = Setting(
        "delete_visibility", .clients, .choice(["strict", "reference"], synonyms: [:]), default: "strict",
        "Who hears that a row of a table with row level security was deleted: strict is those who could see it, "
            + "reference is everybody who asked for deletes of the table, who is told the primary key.")

    public static let tlsCertificate = Setting(
        "tls_certificate", .clients, .file,
        "The certificate with its chain, in PEM; with it clients connect by TLS only. Read again on SIGHUP.")

    public static let tlsKey = Setting("tls_key", .clients, .file, "The certificate's private key, in PEM.")

    public static let loops = Setting(
        "loops", .clients, .integer(0...Limits.maximumLoops), default: "0",
        "Threads that serve clients; 0 is one for each processor.")

    public static let io = Setting(
        "io", .clients, .choice(["auto", "epoll", "io_uring"], synonyms: [:]), default: "auto",
        "How bytes are handed to the kernel; auto is io_uring where the kernel allows it.")

    public static let deflate = Setting(
        "deflate", .clients, .boolean, default: "off",
        "Compress messages for clients that offer permessage-deflate.")

    // MARK: Tokens

    public static let jwtSecret = Setting(
        "jwt_secret", .tokens, .text, isSecret: true, aliases: ["JWT_SECRET", "API_JWT_SECRET"],
        "The secret that clients' tokens are signed with.")

    public static let jwks = Setting(
        "jwks", .tokens, .inlineOrFile("a JSON Web Key Set", begins: "{"), aliases: ["JWT_JWKS", "API_JWT_JWKS"],
        "The public keys that clients' tokens are signed with, in a file or as they are. Files are read again on SIGHUP."
    )

    public static let claimValidators = Setting(
        "jwt_claim_validators", .tokens, .claimValues, default: "{}", aliases: ["JWT_CLAIM_VALIDATORS"],
        "Values that claims must have in tokens that have these claims.")

    public static let allowedRoles = Setting(
        "allowed_roles", .tokens, .text,
        "The roles that clients' tokens may name, separated by commas. Without it, all but superusers, roles that may "
            + "replicate, pg_…, the hub's own logins, and those that bypass row level security (but for bypass_roles).")

    public static let bypassRoles = Setting(
        "bypass_roles", .tokens, .text, default: "service_role",
        "The roles of clients' tokens that may bypass row level security, separated by commas; \"none\" for none.")

    public static let apiKeys = Setting(
        "api_keys", .tokens, .inlineOrFile("KEY = ROLE, one a line or separated by commas", begins: "sb_"),
        "What opaque API keys (sb_publishable_…, sb_secret_…) stand for: a role, or a token to be taken in their place."
    )

    public static let operatorSecret = Setting(
        "operator_jwt_secret", .tokens, .text, isSecret: true, aliases: ["API_JWT_SECRET"],
        "The secret of operators' tokens for /api/tenants, which is closed without one.")

    public static let nextOperatorSecret = Setting(
        "operator_jwt_secret_next", .tokens, .text, isSecret: true, aliases: ["API_JWT_SECRET_NEXT"],
        "A second such secret, while operators change from one to the other.")

    public static let operatorBlocklist = Setting(
        "operator_token_blocklist", .tokens, .text, isSecret: true, aliases: ["API_TOKEN_BLOCKLIST"],
        "Operators' tokens that are refused though they are signed, separated by commas.")

    public static let metricsSecret = Setting(
        "metrics_jwt_secret", .tokens, .text, isSecret: true, aliases: ["METRICS_JWT_SECRET"],
        "The secret of tokens for /metrics, which is open to all without one.")

    public static let metricsBlocklist = Setting(
        "metrics_token_blocklist", .tokens, .text, isSecret: true, aliases: ["METRICS_TOKEN_BLOCKLIST"],
        "Tokens for /metrics that are refused though they are signed, separated by commas.")

    // MARK: Projects

    public static let projectName = Setting(
        "project_name", .projects, .text, default: "realtime-dev", aliases: ["SELF_HOST_TENANT_NAME"],
        "The name of the project that these settings describe: the first part of the Host header where there are others."
    )

    public static let projectKey = Setting(
        "project_key", .projects, .text, isSecret: true, aliases: ["DB_ENC_KEY_GCM", "DB_ENC_KEY"],
        "Any text: the secrets of stored projects are encrypted with it. Without it a key is made in data_dir.")

    public static let region = Setting(
        "region", .projects, .text, default: "us-east-1", aliases: ["REGION"],
        "The region that the health of projects tells; a name and no more.")

    public static let privateOnly = Setting(
        "private_only", .projects, .boolean, default: "off", "Refuse channels that are not private.")

    public static let presenceEnabled = Setting(
        "presence_enabled", .projects, .boolean, default: "off",
        "Send who is present to every channel, not only to those that ask for it.")

    public static let presenceTimeline = Setting(
        "presence_timeline", .projects, .boolean, default: "off",
        "Keep in the event log who came, changed and left.")

    public static let replayPublic = Setting(
        "replay_public", .projects, .boolean, default: "off",
        "Let public channels replay messages too, not only private ones.")

    public static let replayLimit = Setting(
        "replay_limit", .projects, .integer(1...Int64(Limits.maximumReplayedMessages)),
        default: String(Limits.replayedMessages), "Messages that a join may replay at most.")

    public static let messagesRetention = Setting(
        "messages_retention_hours", .projects, .integer(1...Limits.maximumMessagesRetentionHours),
        default: String(Limits.messagesRetentionHours), "Hours that rows of realtime.messages are kept.")

    // MARK: Limits for clients

    public static let maximumConnections = Setting(
        "max_connections", .limits, .integer(1...Limits.maximumConnections), default: String(Limits.connections),
        aliases: ["MAX_CONNECTIONS"], "Clients that are connected at the same time, of all projects.")

    public static let maximumConcurrentUsers = Setting(
        "max_concurrent_users", .limits, .integer(0...Limits.maximumConnections),
        default: String(Limits.concurrentUsers), aliases: ["TENANT_MAX_CONCURRENT_USERS"],
        "Clients of the project that have joined a channel, at the same time; 0 is without limit.")

    public static let channelsPerClient = Setting(
        "max_channels_per_client", .limits, .integer(1...Limits.maximumChannelsPerClient),
        default: String(Limits.channelsPerClient), aliases: ["TENANT_MAX_CHANNELS_PER_CLIENT"],
        "Channels that one connection may join.")

    public static let joinsPerSecond = Setting(
        "max_joins_per_second", .limits, .integer(0...Limits.maximumRate), default: String(Limits.joinsPerSecond),
        aliases: ["TENANT_MAX_JOINS_PER_SECOND"],
        "Joins of the project in a second, on average; 0 is without limit.")

    public static let eventsPerSecond = Setting(
        "max_events_per_second", .limits, .integer(0...Limits.maximumRate), default: String(Limits.eventsPerSecond),
        aliases: ["TENANT_MAX_EVENTS_PER_SECOND"],
        "Messages that the project's clients send and receive in a second, on average; 0 is without limit.")

    public static let presenceEventsPerSecond = Setting(
        "max_presence_events_per_second", .limits, .integer(0...Limits.maximumRate),
        default: String(Limits.presenceEventsPerSecond),
        "Presence messages of the project in a second, on average; 0 is without limit.")

    public static let clientPresenceEvents = Setting(
        "max_client_presence_events_per_window", .limits, .integer(0...Limits.maximumRate),
        default: String(Limits.clientPresenceEvents), aliases: ["CLIENT_PRESENCE_MAX_CALLS"],
        "Presence messages that one channel may send in client_presence_window; 0 is without limit.")

    public static let clientPresenceWindow = Setting(
        "client_presence_window", .limits, .duration(.milliseconds(1)...Limits.maximumClientPresenceWindow),
        default: DurationText.write(Limits.clientPresenceWindow), aliases: ["CLIENT_PRESENCE_WINDOW_MS"],
        "How long that window is.")

    public static let payloadSize = Setting(
        "max_payload_size", .limits, .integer(1...Limits.maximumPayloadKilobytes),
        default: String(Limits.payloadKilobytes),
        "The largest payload of a broadcast or presence, in kB of 1000 bytes; 500 bytes more are let pass.")

    public static let requestBodySize = Setting(
        "max_request_body", .limits, .size(1 << 10...Int64(Limits.largestRequestBodyBytes)),
        default: SizeText.write(Int64(Limits.maximumRequestBodyBytes)), "The largest body of an HTTP request.")

    public static let frameSize = Setting(
        "max_frame_size", .limits, .size(64 << 10...Int64(Limits.maximumClientMessageBytes)),
        default: SizeText.write(Int64(Limits.clientMessageBytes)), "The largest message of a client.")

    public static let recordSize = Setting(
        "max_record_bytes", .limits, .size(1 << 10...Int64(Limits.maximumPieceBytes / 2)),
        default: SizeText.write(Int64(Limits.maximumChangeBodyBytes)),
        "The largest change that is sent whole; a larger one is told without its large values.")

    public static let outboxSize = Setting(
        "outbox_size", .limits, .size(64 << 10...Int64(Limits.outboxTotalBytes)),
        default: SizeText.write(Int64(Limits.outboxBytes)),
        "What may wait for one client that reads too slowly, before it is disconnected.")

    public static let outboxAge = Setting(
        "outbox_age", .limits, .duration(.seconds(1)...Duration.seconds(600)),
        default: DurationText.write(Limits.outboxAge), "How long it may wait.")

    public static let idleTimeout = Setting(
        "idle_timeout", .limits, .duration(.zero...Duration.seconds(86_400)),
        default: DurationText.write(Limits.socketIdleLimit),
        "How long a client may be silent before it is disconnected; 0 is without limit.")

    public static let idleChannelTimeout = Setting(
        "idle_channel_timeout", .limits, .duration(.zero...Duration.seconds(86_400)),
        default: DurationText.write(Limits.idleChannelTimeout), aliases: ["NO_CHANNEL_TIMEOUT_IN_MS"],
        "How long a client may have no channel before it is disconnected; 0 is without limit.")

    public static let connectErrorBackoff = Setting(
        "connect_error_backoff", .limits, .duration(.zero...Limits.maximumErrorBackoff),
        default: DurationText.write(Limits.connectErrorBackoff), aliases: ["CONNECT_ERROR_BACKOFF_MS"],
        "How long a client that may not connect waits for the answer.")

    public static let channelErrorBackoff = Setting(
        "channel_error_backoff", .limits, .duration(.zero...Limits.maximumErrorBackoff),
        default: DurationText.write(Limits.channelErrorBackoff), aliases: ["CHANNEL_ERROR_BACKOFF_MS"],
        "How long a client that may not join a channel waits for the answer.")

    // MARK: Diagnostics

    public static let logLevel = Setting(
        "log_level", .diagnostics,
        .choice(
            Log.Level.allCases.map(\.rawValue),
            synonyms: [
                // What the reference container's LOG_LEVEL may say.
                "warn": "warning", "notice": "info", "critical": "error", "alert": "error", "emergency": "error",
            ]),
        default: "info", aliases: ["LOG_LEVEL"], "The least important lines that are logged.")

    public static let logFormat = Setting(
        "log_format", .diagnostics, .choice(Log.Format.allCases.map(\.rawValue), synonyms: [:]), default: "text",
        "How log lines are written.")
}
