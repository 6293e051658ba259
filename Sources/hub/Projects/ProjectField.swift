import Auth
import Bytes
import Diagnostics
import Postgres
import Settings

/// Field of a project, or of its extension: its name in the API, its type, and the checks of its values.
struct ProjectField {
    enum Kind {
        case text
        case flag
        case number
        case object
        /// JSON Web Key Set.
        case keySet
        /// One of the given words.
        case word([String])
        /// Text for which the given function returns true.
        case checked(@Sendable (String) -> Bool)
    }

    let name: String
    let kind: Kind
    /// True if the value is encrypted in the file and in answers.
    let isSecret: Bool
    /// Error text for an invalid value of the field.
    let mistake: String
    /// Returns the default value from the hub's settings; nil for a field that may be absent.
    let initial: @Sendable (ProjectDefaults) -> JSONValue?
    /// Changes the limits of a project to the value; nil stands for an absent value.
    let limit: @Sendable (JSONValue?, inout ProjectLimits) -> Void

    init(
        _ name: String, _ kind: Kind, isSecret: Bool = false, mistake: String = "is invalid",
        initial: @escaping @Sendable (ProjectDefaults) -> JSONValue? = { _ in nil },
        limit: @escaping @Sendable (JSONValue?, inout ProjectLimits) -> Void = { _, _ in }
    ) {
        self.name = name
        self.kind = kind
        self.isSecret = isSecret
        self.mistake = mistake
        self.initial = initial
        self.limit = limit
    }

    /// Creates a field for a number; zero or absence means no limit.
    private init(_ name: String, limiting limit: any WritableKeyPath<ProjectLimits, Int?> & Sendable) {
        self.init(
            name, .number, initial: { .number($0.limits[keyPath: limit] ?? 0) },
            limit: { $1[keyPath: limit] = $0?.integer.flatMap(ProjectLimits.limit) })
    }

    private init(_ name: String, flag: any WritableKeyPath<ProjectLimits, Bool> & Sendable) {
        self.init(
            name, .flag, initial: { .bool($0.limits[keyPath: flag]) },
            limit: { $1[keyPath: flag] = $0?.bool ?? false })
    }

    /// Returns the value in the form in which the field is stored; nil if it is invalid. Numbers and flags may be given
    /// as texts, as in the reference server's forms.
    func cast(_ value: JSONValue) -> JSONValue? {
        switch kind {
        case .text: isText(value) ? value : nil
        case .flag: Self.flag(value).map { .bool($0) }
        case .number: Self.number(value).map { .number($0) }
        case .object: value.object.map { .object($0) }
        case .keySet: Self.isKeySet(value) ? value : nil
        case .word(let words): value.string.flatMap { words.contains($0) ? value : nil }
        case .checked(let isGood): value.string.flatMap { isGood($0) ? value : nil }
        }
    }

    private static func isKeySet(_ value: JSONValue) -> Bool {
        (try? JWKSet.parse(limited: value.bytes)) != nil
    }

    /// True for a string without a zero character, at which C code would end the text.
    private func isText(_ value: JSONValue) -> Bool {
        value.string.map { !$0.utf8.contains(0) } ?? false
    }

    private static func flag(_ value: JSONValue) -> Bool? {
        switch value {
        case .bool(let flag): flag
        case .string("true"), .string("1"): true
        case .string("false"), .string("0"): false
        default: nil
        }
    }

    /// Returns the number if it is from 0 to the maximum of 32 bits; nil otherwise. The reference server stores 32
    /// bits.
    private static func number(_ value: JSONValue) -> Int? {
        let number = value.integer ?? value.string.flatMap { Int($0) }
        return number.flatMap { (0...Int(Int32.max)).contains($0) ? $0 : nil }
    }
}

extension JWKSet {
    /// Parses a key set within the hub's limits on size and number of keys.
    static func parse(limited bytes: [UInt8]) throws(JWKSetError) -> JWKSet {
        try parse(
            bytes.rawBytes, maximumBytes: Limits.maximumKeySetBytes, maximumKeys: Limits.maximumKeysInSet)
    }
}

// MARK: The fields of a project

extension ProjectField {
    /// Fields of a project, in the order in which they are stored.
    static let all: [ProjectField] = [
        ProjectField("name", .text),
        ProjectField(
            "jwt_secret", .checked(isSoundSecret), isSecret: true,
            mistake: "must have \(ShortSecret.soundBytes) bytes or more"),
        ProjectField("jwt_jwks", .keySet, isSecret: true),
        ProjectField("postgres_cdc_default", .text) { _ in .string(ProjectExtension.rowLevelSecurity) },
        ProjectField("max_concurrent_users", limiting: \.maximumConcurrentUsers),
        ProjectField("max_events_per_second", limiting: \.maximumEventsPerSecond),
        ProjectField("max_presence_events_per_second", limiting: \.maximumPresenceEventsPerSecond),
        ProjectField(
            "max_payload_size_in_kb", .number,
            initial: { .number(ProjectLimits.kilobytes(payloadBytes: $0.limits.maximumPayloadBytes)) },
            limit: { value, limits in
                guard let kilobytes = value?.integer.map(Setting(\.payloadKilobytes).type.nearest) else { return }
                limits.maximumPayloadBytes = ProjectLimits.payloadBytes(kilobytes: kilobytes)
            }),
        ProjectField("max_bytes_per_second", .number) { .number($0.maximumBytesPerSecond) },
        ProjectField(
            "max_channels_per_client", .number, initial: { .number($0.limits.maximumChannelsPerClient) },
            limit: { value, limits in
                guard let channels = value?.integer.map(Setting(\.channelsPerClient).type.nearest) else { return }
                limits.maximumChannelsPerClient = channels
            }),
        ProjectField("max_joins_per_second", limiting: \.maximumJoinsPerSecond),
        ProjectField("suspend", flag: \.isSuspended),
        ProjectField("private_only", flag: \.isPrivateOnly),
        ProjectField("presence_enabled", flag: \.presenceEnabled),
        ProjectField(
            "max_client_presence_events_per_window", .number,
            limit: { value, limits in
                guard let events = value?.integer else { return }
                limits.clientPresenceEvents = ProjectLimits.limit(events)
            }),
        ProjectField(
            "client_presence_window_ms", .number,
            limit: { value, limits in
                guard let window = value?.integer.flatMap(ProjectLimits.limit) else { return }
                limits.clientPresenceWindow = .milliseconds(window)
            }),
        ProjectField("migrations_ran", .number) { _ in .number(0) },
        ProjectField("broadcast_adapter", .word(["phoenix", "gen_rpc"])) { _ in .string("gen_rpc") },
        ProjectField("feature_flags", .object) { _ in .object(JSONObject()) },
    ]

    /// Settings needed to reach a database, in the order in which the reference server reports missing ones.
    static let requiredSettings: [ProjectField] = [
        ProjectField("db_password", .text, isSecret: true),
        ProjectField("db_port", .checked(isPort), isSecret: true),
        ProjectField("db_user", .checked(isName), isSecret: true),
        ProjectField("db_name", .checked(isName), isSecret: true),
        ProjectField("db_host", .checked(isName), isSecret: true),
        ProjectField("region", .text),
    ]

    /// Setting that replaces all required ones: an address in libpq's form. The reference server has no such setting.
    static let databaseURL = ProjectField(
        "database_url", .checked(isAddress), isSecret: true,
        mistake:
            "is invalid, or has a parameter that reads files or settings of the hub's machine, or that is not known")

    /// Parameters of libpq that are allowed in an address: where the database is, who connects, and how this is
    /// secured. None of them makes the hub send secrets that its machine keeps for others (`passfile`, `service`) or
    /// changes the session (`options`).
    private static let addressParameters: Set<String> = [
        "host", "hostaddr", "port", "dbname", "user", "password", "sslmode", "sslnegotiation", "sslrootcert", "sslcert",
        "sslkey", "sslcrl", "sslsni", "ssl_min_protocol_version", "ssl_max_protocol_version", "channel_binding",
        "require_auth", "gssencmode", "connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval",
        "keepalives_count", "tcp_user_timeout", "target_session_attrs", "load_balance_hosts", "application_name",
        "fallback_application_name",
    ]

    static let optionalSettings: [ProjectField] = [
        ProjectField("poll_interval_ms", .number) { _ in .number(100) },
        ProjectField("poll_max_changes", .number) { _ in .number(100) },
        ProjectField("poll_max_record_bytes", .number) { _ in .number(1_048_576) },
        ProjectField("publication", .checked(IdentifierText.isIdentifier)) { _ in .string("supabase_realtime") },
        ProjectField("slot_name", .checked(IdentifierText.isSlotName)) { _ in
            .string(ProjectExtension.referenceSlot)
        },
        ProjectField("ssl_enforced", .flag) { _ in .bool(true) },
        ProjectField("db_pool", .number),
        ProjectField("subcriber_pool_size", .number),
        ProjectField("postgres_changes_pool", .number),
        ProjectField("subs_pool_size", .number),
        ProjectField("db_queue_target", .number),
    ]

    @Sendable
    private static func isName(_ text: String) -> Bool {
        !text.isEmpty && !text.utf8.contains(0)
    }

    /// True if the secret is long enough to sign HS256 tokens (RFC 7518 §3.2: as long as the hash), and has no zero
    /// byte.
    @Sendable
    private static func isSoundSecret(_ text: String) -> Bool {
        text.utf8.count >= ShortSecret.soundBytes && !text.utf8.contains(0)
    }

    @Sendable
    private static func isAddress(_ text: String) -> Bool {
        guard ConnectionString(text) != nil, let parameters = try? ConnectionTarget(text).parameters() else {
            return false
        }
        return parameters.allSatisfy { addressParameters.contains($0.0) }
    }

    @Sendable
    private static func isPort(_ text: String) -> Bool {
        ListenAddress.port(Substring(text)).map { $0 > 0 } ?? false
    }
}
