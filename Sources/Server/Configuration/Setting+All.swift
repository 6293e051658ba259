import Diagnostics

/// Every setting there is.
extension Setting {
    public static let all: [Setting] = [
        .databaseURL, .publication, .publicationCreate, .slot, .slotCreate, .streaming,
        .dataDirectory, .segmentSize, .retentionAge, .retentionSize,
        .listen, .jwtSecret,
        .logLevel, .logFormat,
    ]

    // MARK: Database

    /// Not marked secret as a whole: it is shown, without the secrets in it.
    public static let databaseURL = Setting(
        "database_url", .database, .connection, aliases: ["DB_HOST", "DB_PORT", "DB_USER", "DB_PASSWORD", "DB_NAME"],
        "The database whose changes are read.")

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

    public static let jwtSecret = Setting(
        "jwt_secret", .clients, .text, isSecret: true, aliases: ["API_JWT_SECRET"],
        "The secret that clients' tokens are signed with.")

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
