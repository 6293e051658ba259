import Net

/// All decisions of the operator, parsed and checked. Flags, environment, file and defaults give the values, and each
/// value remembers its source.
///
/// `configuration.slot` is the value of the setting that `AllSettings.slot` declares.
@dynamicMemberLookup
public struct Configuration: Sendable {
    /// One row of `tidewire config`.
    public struct Effective: Sendable {
        public let setting: Setting
        /// The value as the configuration file would write it, secrets hidden; empty when there is none.
        public let shown: String
        public let source: SettingSource
        public let isDefault: Bool
    }

    private let settings: ResolvedSettings
    /// The configuration file that was read, if any.
    public let file: String?
    /// Environment variables that the reference server knows and that have no effect here.
    public let variablesWithoutEffect: [String]

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

    private init(_ settings: ResolvedSettings, file: String?, withoutEffect: [String]) {
        self.settings = settings
        self.file = file
        variablesWithoutEffect = withoutEffect
    }

    public subscript<Value>(dynamicMember key: SettingKey<Value>) -> Value { settings[key] }

    public func source(of setting: Setting) -> SettingSource { settings.source(of: setting) }

    /// All settings in the order of their declaration.
    public var effective: [Effective] { settings.effective }
}

extension Configuration {
    /// TLS settings of the sockets; nil if the hub does not use TLS.
    public var tls: SocketSettings.TLS? {
        guard let certificate = self.tlsCertificate, let key = self.tlsKey else { return nil }
        return SocketSettings.TLS(certificate: certificate, key: key)
    }
}
