import Net

/// All settings, parsed and checked. Values are from flags, the environment, the file and defaults, and each value
/// remembers its source.
///
/// `configuration.slot` is the value of the setting that `AllSettings.slot` declares.
@dynamicMemberLookup
public struct Configuration: Sendable {
    /// Row of the output of `tidewire config`.
    public struct Effective: Sendable {
        public let setting: Setting
        /// Value as the configuration file would contain it, with secrets hidden; empty if there is none.
        public let shown: String
        public let source: SettingSource
        public let isDefault: Bool
    }

    private let settings: ResolvedSettings
    /// Path of the configuration file that was read; nil if there was none.
    public let file: String?
    /// Environment variables that the reference server uses and that have no effect on the hub.
    public let variablesWithoutEffect: [String]

    /// Reads and checks all settings. An override replaces the environment's value, which replaces the file's, which
    /// replaces the default. Throws all problems together, so that the operator can correct them together.
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

    /// All settings with their values, in the order of their declaration.
    public var effective: [Effective] { settings.effective }
}

extension Configuration {
    /// TLS settings of the sockets; nil if the hub does not use TLS.
    public var tls: SocketSettings.TLS? {
        guard let certificate = self.tlsCertificate, let key = self.tlsKey else { return nil }
        return SocketSettings.TLS(certificate: certificate, key: key)
    }
}
