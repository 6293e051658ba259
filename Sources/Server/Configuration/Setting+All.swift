import Diagnostics

/// Every setting there is.
extension Setting {
    public static let all: [Setting] = [
        .databaseURL, .policyDatabaseURL, .publication, .publicationCreate, .slot, .slotCreate, .streaming,
        .dataDirectory, .segmentSize, .retentionAge, .retentionSize,
        .listen, .tlsCertificate, .tlsKey, .loops, .io, .deflate, .deleteVisibility,
        .jwtSecret, .jwks, .claimValidators, .apiKeys, .metricsSecret,
        .maximumConnections, .channelsPerClient, .frameSize, .recordSize, .outboxSize, .outboxAge, .idleTimeout,
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
        "jwt_secret", .tokens, .text, isSecret: true, aliases: ["API_JWT_SECRET"],
        "The secret that clients' tokens are signed with.")

    public static let jwks = Setting(
        "jwks", .tokens, .inlineOrFile("a JSON Web Key Set", begins: "{"), aliases: ["JWT_JWKS", "API_JWT_JWKS"],
        "The public keys that clients' tokens are signed with, in a file or as they are. Files are read again on SIGHUP."
    )

    public static let claimValidators = Setting(
        "jwt_claim_validators", .tokens, .claimValues, default: "{}", aliases: ["JWT_CLAIM_VALIDATORS"],
        "Values that claims must have in tokens that have these claims.")

    public static let apiKeys = Setting(
        "api_keys", .tokens, .inlineOrFile("KEY = ROLE, one a line or separated by commas", begins: "sb_"),
        "What opaque API keys (sb_publishable_…, sb_secret_…) stand for: a role, or a token to be taken in their place."
    )

    public static let metricsSecret = Setting(
        "metrics_jwt_secret", .tokens, .text, isSecret: true, aliases: ["METRICS_JWT_SECRET"],
        "The secret of tokens for /metrics, which is open to all without one.")

    // MARK: Limits for clients

    public static let maximumConnections = Setting(
        "max_connections", .limits, .integer(1...Limits.maximumConnections), default: String(Limits.connections),
        aliases: ["TENANT_MAX_CONCURRENT_USERS"], "Clients that are connected at the same time.")

    public static let channelsPerClient = Setting(
        "max_channels_per_client", .limits, .integer(1...Limits.maximumChannelsPerClient),
        default: String(Limits.channelsPerClient), aliases: ["TENANT_MAX_CHANNELS_PER_CLIENT"],
        "Channels that one connection may join.")

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
