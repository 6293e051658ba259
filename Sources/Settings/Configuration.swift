import Auth
import Diagnostics
import Net

/// Everything the operator decided, understood and checked: flags, environment, file and defaults in, typed values out,
/// each of which remembers where it was found.
public struct Configuration: Sendable {
    /// One row of `tidewire config`.
    public struct Effective: Sendable {
        public let setting: Setting
        /// The value as the configuration file would write it, secrets hidden; empty when there is none.
        public let shown: String
        public let source: SettingSource
        public let isDefault: Bool
    }

    /// Nil when none was given: commands that only read the event log need none.
    public let databaseURL: ConnectionString?
    /// Nil is the login of `databaseURL`.
    public let policyDatabaseURL: ConnectionString?
    public let publication: String
    public let createsPublication: Bool
    public let slot: String
    public let createsSlot: Bool
    public let streamsTransactionsInProgress: Bool
    public let dataDirectory: String
    public let segmentBytes: Int
    /// Nil is without limit.
    public let retentionAge: Duration?
    /// Nil is without limit.
    public let retentionBytes: Int64?
    public let listen: ListenAddress
    /// Nil is without TLS.
    public let tls: SocketSettings.TLS?
    /// Nil is one for each processor.
    public let loops: Int?
    public let backend: SocketSettings.Backend
    public let compresses: Bool
    /// Where row level security is active, deletes are told to those who could see the row, and to nobody else.
    public let deletesAreStrict: Bool
    public let jwtSecret: Secret?
    public let keySet: InlineOrFile?
    public let claimExpectations: ClaimExpectations
    /// Names between commas; nil is any.
    public let allowedRoles: String?
    /// Names between commas.
    public let bypassRoles: String
    public let apiKeys: InlineOrFile?
    public let operatorSecret: Secret?
    public let nextOperatorSecret: Secret?
    /// Tokens, separated by commas.
    public let operatorBlocklist: Secret?
    public let metricsSecret: Secret?
    /// Tokens, separated by commas.
    public let metricsBlocklist: Secret?
    /// The project that the settings themselves describe.
    public let projectName: String
    /// Nil is a key that is made beside the stored projects.
    public let projectKey: Secret?
    public let region: String
    public let keepsPresenceTimeline: Bool
    public let replaysPublicChannels: Bool
    public let replayLimit: Int
    public let messagesHours: Int
    /// Of the project that the settings describe; stored ones have their own.
    public let projectLimits: ProjectLimits
    public let maximumConnections: Int
    public let maximumRequestBodyBytes: Int
    public let frameBytes: Int
    public let recordBytes: Int
    public let outboxBytes: Int
    public let outboxAge: Duration
    /// Nil is without limit.
    public let idleTimeout: Duration?
    /// Nil is without limit.
    public let idleChannelTimeout: Duration?
    public let connectErrorBackoff: Duration
    public let channelErrorBackoff: Duration
    public let logLevel: Log.Level
    public let logFormat: Log.Format

    /// The configuration file that was read, if any.
    public let file: String?
    /// All settings in the order of the registry.
    public let effective: [Effective]
    /// Variables of the environment that the reference knows and that change nothing here.
    public let variablesWithoutEffect: [String]

    /// Channels that one connection may join.
    public var channelsPerClient: Int { projectLimits.maximumChannelsPerClient }

    /// Finds and checks every setting: an override wins over the environment, which wins over the file, which wins over
    /// the default. Throws all problems at once, so that they can be put right at once.
    public static func load(
        overrides: [SettingOverride] = [], file path: String? = nil,
        surroundings: ConfigurationSurroundings = .ofThisProcess
    ) throws(ConfigurationFailure) -> Configuration {
        var given = GivenSettings()
        let file = given.readFile(named: path, in: surroundings)
        given.readEnvironment(of: surroundings)
        for override in overrides {
            given.give(override.setting, override.text, from: override.source)
        }
        given.applySlotSuffix(of: surroundings)
        var resolved = ResolvedSettings(given, surroundings)
        resolved.checkTogether()
        let problems = given.problems + resolved.takeProblems()
        guard problems.isEmpty else { throw ConfigurationFailure(problems: problems) }
        return Configuration(
            resolved, file: file, withoutEffect: ReferenceVariables.withoutEffect(in: surroundings.environment))
    }

    public func source(of setting: Setting) -> SettingSource {
        guard let found = effective.first(where: { $0.setting == setting }) else {
            preconditionFailure("\(setting.name) is not in Setting.all")
        }
        return found.source
    }

    private init(_ settings: ResolvedSettings, file: String?, withoutEffect: [String]) {
        databaseURL = settings.connection(.databaseURL)
        policyDatabaseURL = settings.connection(.policyDatabaseURL)
        publication = settings.text(.publication)
        createsPublication = settings.boolean(.publicationCreate)
        slot = settings.text(.slot)
        createsSlot = settings.boolean(.slotCreate)
        streamsTransactionsInProgress = settings.boolean(.streaming)
        dataDirectory = settings.text(.dataDirectory)
        segmentBytes = Int(settings.size(.segmentSize))
        retentionAge = settings.limit(settings.duration(.retentionAge), none: .zero)
        retentionBytes = settings.limit(settings.size(.retentionSize), none: 0)
        listen = settings.address(.listen)
        tls = settings.optionalText(.tlsCertificate).flatMap { certificate in
            settings.optionalText(.tlsKey).map { SocketSettings.TLS(certificate: certificate, key: $0) }
        }
        loops = settings.limit(settings.integer(.loops), none: 0)
        backend = settings.backend(.io)
        compresses = settings.boolean(.deflate)
        deletesAreStrict = settings.text(.deleteVisibility) == "strict"
        jwtSecret = settings.secret(.jwtSecret)
        keySet = settings.source(.jwks)
        claimExpectations = settings.claims(.claimValidators)
        allowedRoles = settings.optionalText(.allowedRoles)
        bypassRoles = settings.text(.bypassRoles)
        apiKeys = settings.source(.apiKeys)
        operatorSecret = settings.secret(.operatorSecret)
        nextOperatorSecret = settings.secret(.nextOperatorSecret)
        operatorBlocklist = settings.secret(.operatorBlocklist)
        metricsSecret = settings.secret(.metricsSecret)
        metricsBlocklist = settings.secret(.metricsBlocklist)
        projectName = settings.text(.projectName)
        projectKey = settings.secret(.projectKey)
        region = settings.text(.region)
        keepsPresenceTimeline = settings.boolean(.presenceTimeline)
        replaysPublicChannels = settings.boolean(.replayPublic)
        replayLimit = settings.integer(.replayLimit)
        messagesHours = settings.integer(.messagesRetention)
        projectLimits = ProjectLimits(settings)
        maximumConnections = settings.integer(.maximumConnections)
        maximumRequestBodyBytes = Int(settings.size(.requestBodySize))
        frameBytes = Int(settings.size(.frameSize))
        recordBytes = Int(settings.size(.recordSize))
        outboxBytes = Int(settings.size(.outboxSize))
        outboxAge = settings.duration(.outboxAge)
        idleTimeout = settings.limit(settings.duration(.idleTimeout), none: .zero)
        idleChannelTimeout = settings.limit(settings.duration(.idleChannelTimeout), none: .zero)
        connectErrorBackoff = settings.duration(.connectErrorBackoff)
        channelErrorBackoff = settings.duration(.channelErrorBackoff)
        logLevel = settings.word(.logLevel)
        logFormat = settings.word(.logFormat)
        self.file = file
        effective = settings.effective
        variablesWithoutEffect = withoutEffect
    }
}
