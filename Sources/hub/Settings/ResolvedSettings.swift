/// Values of all settings, parsed by their types, from the given texts and the defaults.
struct ResolvedSettings {
    private struct Resolved {
        let value: SettingValue
        let source: SettingSource
        let isDefault: Bool
    }

    private var values: [String: Resolved] = [:]
    private var problems: [ConfigurationFailure.Problem] = []

    init(_ given: GivenSettings, _ surroundings: ConfigurationSurroundings) {
        for setting in Setting.all {
            let defaultValue = Self.defaultValue(of: setting, surroundings)
            guard let found = given[setting] else {
                values[setting.name] = defaultValue.map { Resolved(value: $0, source: .builtIn, isDefault: true) }
                continue
            }
            do throws(MalformedValue) {
                let value = try setting.type.parse(found.text)
                values[setting.name] = Resolved(
                    value: value, source: found.source, isDefault: value == defaultValue)
            } catch {
                report(setting, found, expected: error.expected)
            }
        }
    }

    /// Checks settings whose values must fit each other, and reports the problems.
    mutating func checkTogether() {
        let (certificate, key) = (values[Setting(\.tlsCertificate).name], values[Setting(\.tlsKey).name])
        if let certificate, key == nil {
            report(certificate.source, "tls_certificate is of no use without tls_key")
        }
        if let key, certificate == nil { report(key.source, "tls_key is of no use without tls_certificate") }
        checkCluster()
    }

    private mutating func checkCluster() {
        let (certificate, key) = (values[Setting(\.clusterCertificate).name], values[Setting(\.clusterKey).name])
        if let certificate, key == nil {
            report(certificate.source, "cluster_certificate is of no use without cluster_key")
        }
        if let key, certificate == nil { report(key.source, "cluster_key is of no use without cluster_certificate") }
        guard problems.isEmpty else { return }
        if self[\.clusterReplicas] == 1, !self[\.isClusterTrial] {
            report(
                source(of: Setting(\.clusterReplicas)),
                "cluster_replicas = 1 loses the log with one server; only a trial may have it (cluster_trial = on)")
        }
        let logins = [Setting(\.clusterCredentials), Setting(\.clusterNkey), Setting(\.clusterTokenFile)].filter {
            values[$0.name] != nil
        }
        let names = logins.map(\.name) + (self[\.clusterServers]?.login == nil ? [] : ["the login in cluster"])
        if let last = logins.last, names.count > 1 {
            report(source(of: last), "give one login, not \(names.joined(separator: " and "))")
        }
    }

    private mutating func report(_ source: SettingSource, _ message: String) {
        problems.append(ConfigurationFailure.Problem(place: source.description, message: message))
    }

    mutating func takeProblems() -> [ConfigurationFailure.Problem] {
        defer { problems = [] }
        return problems
    }

    private static func defaultValue(of setting: Setting, _ surroundings: ConfigurationSurroundings) -> SettingValue? {
        guard let text = surroundings.defaultText(of: setting) else { return nil }
        guard let value = try? setting.type.parse(text) else {
            preconditionFailure("the default of \(setting.name) must be a value of its type")
        }
        return value
    }

    /// Reports a malformed value. The report contains the text, to help the operator find it, unless it may contain a
    /// secret.
    private mutating func report(_ setting: Setting, _ found: GivenSettings.Given, expected: String) {
        let repeated = setting.type.mayHoldSecret ? " (what was given is not shown)" : ", not \"\(found.text)\""
        report(found.source, "\(setting.name): expected \(expected)\(repeated)")
    }

    var effective: [Configuration.Effective] {
        Setting.all.map { setting in
            let resolved = values[setting.name]
            return Configuration.Effective(
                setting: setting, shown: resolved.map { shown($0, setting) } ?? "",
                source: source(of: setting), isDefault: resolved?.isDefault ?? true)
        }
    }

    func source(of setting: Setting) -> SettingSource {
        values[setting.name]?.source ?? .builtIn
    }

    /// Returns a setting's value as text. A default is shown as it is documented: 72h, although 3d is the same
    /// duration.
    private func shown(_ resolved: Resolved, _ setting: Setting) -> String {
        resolved.isDefault ? setting.defaultText ?? resolved.value.shown : resolved.value.shown
    }

    /// Value of the setting with this key. Its type was checked when it was parsed, so a mismatch is a mistake in this
    /// program.
    subscript<Value>(key: SettingKey<Value>) -> Value {
        let declaration = AllSettings.declared[keyPath: key]
        guard let value = declaration.value(values[declaration.setting.name]?.value) else {
            preconditionFailure("\(declaration.setting.name) must hold a value of its type")
        }
        return value
    }
}

extension ConfigurationSurroundings {
    func defaultText(of setting: Setting) -> String? {
        setting == Setting(\.dataDirectory) ? defaultDataDirectory : setting.defaultText
    }

    /// Directory that the Filesystem Hierarchy Standard (for root) or the XDG Base Directory Specification (for others)
    /// gives.
    private var defaultDataDirectory: String {
        if isRoot { return "/var/lib/tidewire" }
        if let state = nonEmpty("XDG_STATE_HOME") { return state + "/tidewire" }
        if let home = nonEmpty("HOME") { return home + "/.local/state/tidewire" }
        return "./tidewire-data"
    }
}
