import Diagnostics
import Net

/// All settings, each declared once: its name, its allowed values, its meaning, and the type of its value in the
/// program. The property's name is the name in the program.
public struct AllSettings: Sendable {
    static let declared = AllSettings()

    // MARK: Database

    /// Address of the database. It is not a secret as a whole: the program shows it without the secrets in it.
    public let databaseURL = TypedSetting(
        "database_url", .database, .connection,
        "The address of the database that the hub follows.")

    public let policyDatabaseURL = TypedSetting(
        "policy_database_url", .database, .connection,
        "The same database with the login that runs row level security policies. It must be able to become the client roles, "
            + "and nothing else. Default: the login of database_url, if it can do no more than that.")

    public let publication = TypedSetting(
        "publication", .database, .identifier, default: "supabase_realtime",
        "The publication with the tables that the hub follows.")

    public let createsPublication = TypedSetting(
        "publication_create", .database, .boolean, default: "on", "Create the publication if it is missing.")

    public let preparesDatabase = TypedSetting(
        "database_prepare", .database, .boolean, default: "off", aliases: ["SEED_SELF_HOST"],
        "At its start the hub creates what the database lacks, like 'tidewire db apply', as far as the login may.")

    public let slot = TypedSetting(
        "slot", .database, .slotName, default: "tidewire",
        "The replication slot, in which PostgreSQL records how far the hub has read.")

    public let createsSlot = TypedSetting(
        "slot_create", .database, .boolean, default: "on", "Create the replication slot if it is missing.")

    public let streamsTransactionsInProgress = TypedSetting(
        "streaming", .database, .boolean, default: "on",
        "Ask PostgreSQL to send large transactions while they are in progress.")

    // MARK: Event log

    public let dataDirectory = TypedSetting(
        "data_dir", .eventLog, .path, default: nil, "The directory of the event log.")

    public let segmentBytes = TypedSetting(
        "segment_size", .eventLog, .size(Int64(Limits.minimumSegmentBytes)...Int64(Limits.maximumSegmentBytes)),
        default: SizeText.write(Int64(Limits.defaultSegmentBytes)),
        "The size at which the hub begins a new segment file.")

    public let retentionAge = TypedSetting(
        "retention_age", .eventLog, .duration(.zero...Limits.maximumRetentionAge), default: "72h",
        "The longest time that changes are kept; 0 is without limit."
    ).unlessZero

    public let retentionBytes = TypedSetting(
        "retention_size", .eventLog, .size(0...Limits.maximumRetentionBytes), default: "10GB",
        "The largest size of the event log; the hub deletes the oldest segments beyond it. 0 is without limit."
    ).unlessZero

    public let scrubRate = TypedSetting(
        "scrub_rate", .eventLog, .size(0...1 << 30), default: "8MB",
        "How many bytes of sealed segments the hub reads again each second, to find damage early; 0 is none."
    ).unlessZero

    public let maskRules = TypedSetting(
        "mask_rules", .eventLog, .file,
        "A file with columns whose values commands mask, beside those with well-known names (email, password, token, "
            + "phone, address and others). One column a line, such as users.diagnosis; !public.notes.email is not masked. "
            + "A hub writes the rules into its log's directory, where every reader obeys them, and reads the file again on "
            + "SIGHUP."
    )

    public let replayTargets = TypedSetting(
        "replay_targets", .eventLog, .text,
        "Databases and hubs to which 'tidewire replay' may write, although somebody follows them or they look like the "
            + "source: host:port/database or host:port, separated by commas.")

    // MARK: Cluster

    public let clusterServers = TypedSetting(
        "cluster", .cluster, .natsServers,
        "The NATS servers of the cluster that this hub is a node of, separated by commas. They carry a user and password, or "
            + "a token, in the URL if the servers ask for one. Empty: the hub is alone, and uses no server.")

    public let clusterNode = TypedSetting(
        "cluster_node", .cluster, .nodeName,
        "The name of this node, which no other node of the cluster may have. Default: the host name, with - for dots.")

    public let clusterCredentials = TypedSetting(
        "cluster_credentials", .cluster, .file,
        "A file with the JWT and the seed of a NATS user (.creds), for servers with accounts.")

    public let clusterNkey = TypedSetting(
        "cluster_nkey", .cluster, .file,
        "A file with the seed of the nkey (SU…) by which the NATS servers know the hub.")

    public let clusterTokenFile = TypedSetting(
        "cluster_token_file", .cluster, .file, "A file with the token that the NATS servers ask for.")

    public let clusterAuthorities = TypedSetting(
        "cluster_ca", .cluster, .file,
        "The authorities that may sign the certificates of the NATS servers, in PEM. Default: those of the system.")

    public let clusterCertificate = TypedSetting(
        "cluster_certificate", .cluster, .file,
        "The certificate with its chain that the hub shows to the NATS servers, in PEM.")

    public let clusterKey = TypedSetting(
        "cluster_key", .cluster, .file, "The private key of cluster_certificate, in PEM.")

    public let clusterReplicas = TypedSetting(
        "cluster_replicas", .cluster, .choice([("1", 1), ("3", 3), ("5", 5)]), default: "3",
        "How many NATS servers store each message of the log: 3 survive the loss of one server, 5 of two. 1 is only for a trial."
    )

    public let isClusterTrial = TypedSetting(
        "cluster_trial", .cluster, .boolean, default: "off",
        "Run also on NATS servers that can lose what they have acknowledged: the hub warns where it would refuse. Not for "
            + "data that matters.")

    public let clusterMonitors = TypedSetting(
        "cluster_monitor", .cluster, .monitors,
        "The monitoring ports of the NATS servers, by which the hub checks their configuration, separated by commas. Default: "
            + "http and port 8222 on the hosts of cluster.")

    // MARK: Clients

    public let listen = TypedSetting(
        "listen", .clients, .address, default: "127.0.0.1:4000",
        "The address and port to which clients connect.")

    public let tlsCertificate = TypedSetting(
        "tls_certificate", .clients, .file,
        "The certificate with its chain, in PEM. With it, clients can connect by TLS only. The hub reads it again on SIGHUP."
    )

    public let tlsKey = TypedSetting("tls_key", .clients, .file, "The certificate's private key, in PEM.")

    public let loops = TypedSetting(
        "loops", .clients, .integer(0...Limits.maximumLoops), default: "0",
        "The number of threads that serve clients; 0 is one for each processor."
    ).unlessZero

    public let backend = TypedSetting(
        "io", .clients, .choice([("auto", SocketSettings.Backend.automatic), ("epoll", .epoll), ("io_uring", .ring)]),
        default: "auto",
        "The kernel interface for sockets; auto is io_uring if the kernel allows it.")

    public let compresses = TypedSetting(
        "deflate", .clients, .boolean, default: "off",
        "Compress messages for clients that offer permessage-deflate.")

    public let deletesAreStrict = TypedSetting(
        "delete_visibility", .clients, .choice([("strict", true), ("reference", false)]), default: "strict",
        "Which clients are told that a row of a table with row level security was deleted: strict is those that could see "
            + "the row; reference is all that subscribe to deletes of the table, and they are told the primary key.")

    public let catchUp = TypedSetting(
        "catch_up", .clients, .choice(CatchUpScope.allCases.map { ($0.rawValue, $0) }), default: "on",
        "Which clients receive what they missed after they reconnect, without asking for it: on is those with a login "
            + "(session_id in the token) or a client_id in their address, client_id is only the latter, off is none. The hub "
            + "tells all other clients that reconnect that changes may be missing.")

    public let catchUpGrace = TypedSetting(
        "catch_up_grace", .clients, .duration(.seconds(1)...Limits.maximumDepartureGrace),
        default: DurationText.write(Limits.resumeGrace),
        "The longest absence after which catch_up still applies.")

    public let positionInterval = TypedSetting(
        "position_interval", .clients, .duration(.seconds(1)...Limits.maximumPositionInterval),
        default: DurationText.write(Limits.positionInterval),
        "After this time without changes, the hub sends its current position to a channel that asked for positions, if the "
            + "event log has grown. So the position from which the channel resumes stays within retention.")

    public let drainTime = TypedSetting(
        "drain_time", .clients, .duration(.zero...Limits.maximumDrainTime),
        default: DurationText.write(Limits.drainTime),
        "The time over which a hub that stops disconnects its clients, so that they do not all reconnect at once. A hub "
            + "with few clients needs less.")

    // MARK: Tokens

    public let jwtSecret = TypedSetting(
        "jwt_secret", .tokens, .secret, aliases: ["JWT_SECRET", "API_JWT_SECRET"],
        "The secret with which clients' tokens are signed.")

    public let keySet = TypedSetting(
        "jwks", .tokens, .inlineOrFile("a JSON Web Key Set", begins: "{"), aliases: ["JWT_JWKS", "API_JWT_JWKS"],
        "The public keys of clients' tokens, as a file or as the JSON itself. The hub reads a file again on SIGHUP."
    )

    public let claimExpectations = TypedSetting(
        "jwt_claim_validators", .tokens, .claimValues, default: "{}", aliases: ["JWT_CLAIM_VALIDATORS"],
        "The values that these claims must have, if a token has the claims.")

    public let allowedRoles = TypedSetting(
        "allowed_roles", .tokens, .text,
        "The roles that clients' tokens may name, separated by commas. Default: all roles except superusers, roles that may "
            + "replicate, pg_… roles, the hub's own logins, and roles that bypass row level security and are not in "
            + "bypass_roles.")

    public let bypassRoles = TypedSetting(
        "bypass_roles", .tokens, .text, default: "service_role",
        "The roles of clients' tokens that may bypass row level security, separated by commas; \"none\" for none.")

    public let apiKeys = TypedSetting(
        "api_keys", .tokens, .inlineOrFile("KEY = ROLE, one a line or separated by commas", begins: "sb_"),
        "What opaque API keys (sb_publishable_…, sb_secret_…) stand for: a role, or a token that replaces the key."
    )

    public let operatorSecret = TypedSetting(
        "operator_jwt_secret", .tokens, .secret, aliases: ["API_JWT_SECRET"],
        "The secret with which operators' tokens for /api/tenants are signed. Without it, /api/tenants is closed.")

    public let nextOperatorSecret = TypedSetting(
        "operator_jwt_secret_next", .tokens, .secret, aliases: ["API_JWT_SECRET_NEXT"],
        "A second operator_jwt_secret, for the time in which operators change from one to the other.")

    public let operatorBlocklist = TypedSetting(
        "operator_token_blocklist", .tokens, .secret, aliases: ["API_TOKEN_BLOCKLIST"],
        "Operators' tokens that the hub refuses although they are valid, separated by commas.")

    public let operatorRoleClaim = TypedSetting(
        "operator_role_claim", .tokens, .text, default: "tidewire_role",
        "The claim of an operator's token that names the operator's role: viewer, analyst or admin. A token with another "
            + "value is refused.")

    public let operatorDefaultRole = TypedSetting(
        "operator_default_role", .tokens, .choice(OperatorDefaultRole.allCases.map { ($0.rawValue, $0) }),
        default: "admin",
        "The role of an operator's token without the claim of operator_role_claim; none refuses such a token.")

    public let console = TypedSetting(
        "console", .tokens, .choice(ConsoleAccess.allCases.map { ($0.rawValue, $0) }), default: "on",
        "Who may use the web console at /console/: on is operators, who sign in with a token (nobody without "
            + "operator_jwt_secret); loopback is also everybody on the hub's machine, without a token; off is nobody.")

    public let metricsSecret = TypedSetting(
        "metrics_jwt_secret", .tokens, .secret, aliases: ["METRICS_JWT_SECRET"],
        "The secret with which tokens for /metrics are signed. Without it, /metrics is open to everybody.")

    public let metricsBlocklist = TypedSetting(
        "metrics_token_blocklist", .tokens, .secret, aliases: ["METRICS_TOKEN_BLOCKLIST"],
        "Tokens for /metrics that the hub refuses although they are valid, separated by commas.")

    // MARK: Projects

    public let projectName = TypedSetting(
        "project_name", .projects, .text, default: "realtime-dev", aliases: ["SELF_HOST_TENANT_NAME"],
        "The name of the project that these settings describe. If there are other projects, the first part of the Host "
            + "header selects one by its name."
    )

    public let unknownHosts = TypedSetting(
        "unknown_hosts", .projects, .choice(UnknownHosts.allCases.map { ($0.rawValue, $0) }), default: "single",
        "Which project serves clients whose host name belongs to no project: single is the only project, if there is just "
            + "one; main is the project that these settings describe; refuse is none.")

    public let projectKey = TypedSetting(
        "project_key", .projects, .secret, aliases: ["DB_ENC_KEY", "DB_ENC_KEY_GCM"],
        "Any text, with which the hub encrypts the secrets of stored projects. Without it, the hub makes a key in data_dir."
    )

    public let region = TypedSetting(
        "region", .projects, .text, default: "us-east-1", aliases: ["REGION"],
        "The name of the region in the health reports of projects. It has no other effect.")

    public let privateOnly = TypedSetting(
        "private_only", .projects, .boolean, default: "off", "Refuse channels that are not private.")

    public let presenceEnabled = TypedSetting(
        "presence_enabled", .projects, .boolean, default: "off",
        "Send presence to every channel, not only to those that ask for it.")

    public let keepsPresenceTimeline = TypedSetting(
        "presence_timeline", .projects, .boolean, default: "off",
        "Record presence in the event log: who joined, changed and left.")

    public let ledger = TypedSetting(
        "ledger", .projects, .choice(LedgerScope.allCases.map { ($0.rawValue, $0) }), default: "ranges",
        "What the event log records about channels, for 'tidewire who': ranges is who joined what, from which offset to which, "
            + "who was refused and who was told of a loss; exceptions is only refusals and losses; full is also each delivery; "
            + "off is nothing."
    )

    public let ledgerClaims = TypedSetting(
        "ledger_claims", .projects, .text, default: "sub,role,session_id,aal,is_anonymous,app_metadata",
        "The claims that the ledger records. It never records other claims, nor tokens.")

    public let replaysPublicChannels = TypedSetting(
        "replay_public", .projects, .boolean, default: "off",
        "Let public channels replay earlier messages too, not only private ones.")

    public let replayLimit = TypedSetting(
        "replay_limit", .projects, .integer(1...Int64(Limits.maximumReplayedMessages)),
        default: "25", "The most earlier messages that one join may replay.")

    public let messagesHours = TypedSetting(
        "messages_retention_hours", .projects, .integer(1...Limits.maximumMessagesRetentionHours),
        default: String(Limits.messagesRetentionHours),
        "The hours for which rows of realtime.messages are kept.")

    // MARK: Limits for clients

    public let maximumConnections = TypedSetting(
        "max_connections", .limits, .integer(1...Limits.maximumConnections), default: "100000",
        aliases: ["MAX_CONNECTIONS"], "The most clients that are connected at the same time, of all projects together.")

    public let maximumConcurrentUsers = TypedSetting(
        "max_concurrent_users", .limits, .integer(0...Limits.maximumConnections),
        default: "10000", aliases: ["TENANT_MAX_CONCURRENT_USERS"],
        "The most clients of the project that have joined a channel at the same time; 0 is without limit."
    ).unlessZero

    public let channelsPerClient = TypedSetting(
        "max_channels_per_client", .limits, .integer(1...Limits.maximumChannelsPerClient),
        default: "100", aliases: ["TENANT_MAX_CHANNELS_PER_CLIENT"],
        "The most channels that one connection may join.")

    // Rates are averages over some seconds. The reference server's own defaults (100 events and 100 joins a second)
    // would close channels of a small application.

    public let joinsPerSecond = TypedSetting(
        "max_joins_per_second", .limits, .integer(0...Limits.maximumRate), default: "2500",
        aliases: ["TENANT_MAX_JOINS_PER_SECOND"],
        "The most joins of the project in a second, on average; 0 is without limit."
    ).unlessZero

    public let eventsPerSecond = TypedSetting(
        "max_events_per_second", .limits, .integer(0...Limits.maximumRate), default: "10000",
        aliases: ["TENANT_MAX_EVENTS_PER_SECOND"],
        "The most messages that the project's clients send and receive in a second, on average; 0 is without limit."
    ).unlessZero

    public let presenceEventsPerSecond = TypedSetting(
        "max_presence_events_per_second", .limits, .integer(0...Limits.maximumRate),
        default: "10000",
        "The most presence messages of the project in a second, on average; 0 is without limit."
    ).unlessZero

    public let clientPresenceEvents = TypedSetting(
        "max_client_presence_events_per_window", .limits, .integer(0...Limits.maximumRate),
        default: "5", aliases: ["CLIENT_PRESENCE_MAX_CALLS"],
        "The most presence messages that one channel may send in client_presence_window; 0 is without limit."
    ).unlessZero

    public let clientPresenceWindow = TypedSetting(
        "client_presence_window", .limits, .duration(.milliseconds(1)...Limits.maximumClientPresenceWindow),
        default: "30s", aliases: ["CLIENT_PRESENCE_WINDOW_MS"],
        "The window of max_client_presence_events_per_window.")

    public let payloadKilobytes = TypedSetting(
        "max_payload_size", .limits, .integer(1...Limits.maximumPayloadKilobytes),
        default: "3000",
        "The largest payload of a broadcast or presence message, in kB of 1000 bytes; 500 bytes more are accepted.")

    public let maximumRequestBodyBytes = TypedSetting(
        "max_request_body", .limits, .size(1 << 10...Int64(Limits.largestRequestBodyBytes)),
        default: SizeText.write(Int64(Limits.maximumRequestBodyBytes)), "The largest body of an HTTP request.")

    public let frameBytes = TypedSetting(
        "max_frame_size", .limits, .size(64 << 10...Int64(Limits.maximumClientMessageBytes)),
        default: SizeText.write(Int64(Limits.clientMessageBytes)), "The largest message of a client.")

    public let recordBytes = TypedSetting(
        "max_record_bytes", .limits, .size(1 << 10...Int64(Limits.maximumPieceBytes / 2)),
        default: SizeText.write(Int64(Limits.maximumChangeBodyBytes)),
        "The largest change that is sent whole; the hub sends a larger one without its large values.")

    public let outboxBytes = TypedSetting(
        "outbox_size", .limits, .size(64 << 10...Int64(Limits.outboxTotalBytes)),
        default: SizeText.write(Int64(Limits.outboxBytes)),
        "How many bytes may wait for a client that reads too slowly, before the hub disconnects it. Changes do not count: "
            + "they wait in the log.")

    public let outboxAge = TypedSetting(
        "outbox_age", .limits, .duration(.seconds(1)...Duration.seconds(600)),
        default: DurationText.write(Limits.outboxAge),
        "How long a client with waiting bytes may read nothing, before the hub disconnects it.")

    public let outboxLag = TypedSetting(
        "outbox_lag", .limits, .integer(0...Limits.maximumOutboxLag), default: "0",
        "How many changes a slow client may be behind the event log's end; with 0, only the log's retention limits it."
    ).unlessZero

    public let idleTimeout = TypedSetting(
        "idle_timeout", .limits, .duration(.zero...Duration.seconds(86_400)),
        default: DurationText.write(Limits.socketIdleLimit),
        "How long a client may send nothing before the hub disconnects it; 0 is without limit."
    ).unlessZero

    public let idleChannelTimeout = TypedSetting(
        "idle_channel_timeout", .limits, .duration(.zero...Duration.seconds(86_400)),
        default: DurationText.write(Limits.idleChannelTimeout), aliases: ["NO_CHANNEL_TIMEOUT_IN_MS"],
        "How long a client may have no channel before the hub disconnects it; 0 is without limit."
    ).unlessZero

    public let connectErrorBackoff = TypedSetting(
        "connect_error_backoff", .limits, .duration(.zero...Limits.maximumErrorBackoff),
        default: DurationText.write(Limits.connectErrorBackoff), aliases: ["CONNECT_ERROR_BACKOFF_MS"],
        "How long the hub delays the answer that refuses a connection.")

    public let channelErrorBackoff = TypedSetting(
        "channel_error_backoff", .limits, .duration(.zero...Limits.maximumErrorBackoff),
        default: DurationText.write(Limits.channelErrorBackoff), aliases: ["CHANNEL_ERROR_BACKOFF_MS"],
        "How long the hub delays the answer that refuses a join.")

    // MARK: Diagnostics

    public let measuredTables = TypedSetting(
        "metrics_tables", .diagnostics, .integer(0...Limits.maximumMeasuredTables),
        default: "\(Limits.measuredTables)",
        "How many tables of a project have their own metrics; all other tables are counted together as other.")

    public let logLevel = TypedSetting(
        "log_level", .diagnostics,
        .choice(
            Log.Level.allCases.map { ($0.rawValue, $0) },
            synonyms: [
                // Words that the reference container's LOG_LEVEL may have.
                "warn": "warning", "notice": "info", "critical": "error", "alert": "error", "emergency": "error",
            ]),
        default: "info", aliases: ["LOG_LEVEL"], "The lowest level of the lines that are logged.")

    public let logFormat = TypedSetting(
        "log_format", .diagnostics, .choice(Log.Format.allCases.map { ($0.rawValue, $0) }), default: "text",
        "The format of log lines.")
}
