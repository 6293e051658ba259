import Auth
import Net

/// Given settings and defaults, each understood as its type says.
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

    /// What only together makes sense.
    mutating func checkTogether() {
        let (certificate, key) = (values[Setting.tlsCertificate.name], values[Setting.tlsKey.name])
        if let certificate, key == nil {
            report(certificate.source, "tls_certificate is of no use without tls_key")
        }
        if let key, certificate == nil { report(key.source, "tls_key is of no use without tls_certificate") }
    }

    private mutating func report(_ source: SettingSource, _ message: String) {
        problems.append(ConfigurationFailure.Problem(place: source.description, message: message))
    }

    mutating func takeProblems() -> [ConfigurationFailure.Problem] {
        defer { problems = [] }
        return problems
    }

    private static func defaultValue(of setting: Setting, _ surroundings: ConfigurationSurroundings) -> SettingValue? {
        if setting == .dataDirectory { return .text(surroundings.defaultDataDirectory) }
        guard let text = setting.defaultText else { return nil }
        guard let value = try? setting.type.parse(text) else {
            preconditionFailure("the default of \(setting.name) must be a value of its type")
        }
        return value
    }

    /// The text is repeated, since that is what helps to find it, unless it may hold a secret.
    private mutating func report(_ setting: Setting, _ found: GivenSettings.Given, expected: String) {
        let repeated = setting.mayHoldSecret ? " (what was given is not shown)" : ", not \"\(found.text)\""
        report(found.source, "\(setting.name): expected \(expected)\(repeated)")
    }

    var effective: [Configuration.Effective] {
        Setting.all.map { setting in
            let resolved = values[setting.name]
            return Configuration.Effective(
                setting: setting, shown: resolved.map { shown($0, setting) } ?? "",
                source: resolved?.source ?? .builtIn, isDefault: resolved?.isDefault ?? true)
        }
    }

    /// A default is shown in the words in which it is documented: 72h, though 3d is the same.
    private func shown(_ resolved: Resolved, _ setting: Setting) -> String {
        if setting.isSecret { return Secret.mask }
        return resolved.isDefault ? setting.defaultText ?? resolved.value.shown : resolved.value.shown
    }
}

extension Setting {
    fileprivate var mayHoldSecret: Bool {
        switch type {
        case .connection, .inlineOrFile: true
        default: isSecret
        }
    }
}

extension SettingValue {
    fileprivate var shown: String {
        switch self {
        case .text(let text): text
        case .boolean(let flag): flag ? "on" : "off"
        case .integer(let number): String(number)
        case .size(let bytes): SizeText.write(bytes)
        case .duration(let duration): DurationText.write(duration)
        case .address(let address): address.description
        case .connection(let connection): connection.redacted
        case .source(let source): source.shown
        }
    }
}

extension ConfigurationSurroundings {
    /// The Filesystem Hierarchy Standard's place for a service, the XDG Base Directory Specification's for a person.
    var defaultDataDirectory: String {
        if isRoot { return "/var/lib/tidewire" }
        if let state = nonEmpty("XDG_STATE_HOME") { return state + "/tidewire" }
        if let home = nonEmpty("HOME") { return home + "/.local/state/tidewire" }
        return "./tidewire-data"
    }
}

/// Each type's value. That a setting holds its type is checked where it is parsed, so a mismatch here is a mistake of ours.
extension ResolvedSettings {
    func text(_ setting: Setting) -> String {
        guard let text = optionalText(setting) else { mismatch(setting) }
        return text
    }

    func optionalText(_ setting: Setting) -> String? {
        guard let value = values[setting.name]?.value else { return nil }
        guard case .text(let text) = value else { mismatch(setting) }
        return text
    }

    func boolean(_ setting: Setting) -> Bool {
        guard case .boolean(let flag) = values[setting.name]?.value else { mismatch(setting) }
        return flag
    }

    func size(_ setting: Setting) -> Int64 {
        guard case .size(let bytes) = values[setting.name]?.value else { mismatch(setting) }
        return bytes
    }

    func duration(_ setting: Setting) -> Duration {
        guard case .duration(let duration) = values[setting.name]?.value else { mismatch(setting) }
        return duration
    }

    func address(_ setting: Setting) -> ListenAddress {
        guard case .address(let address) = values[setting.name]?.value else { mismatch(setting) }
        return address
    }

    func connection(_ setting: Setting) -> ConnectionString? {
        guard let value = values[setting.name]?.value else { return nil }
        guard case .connection(let connection) = value else { mismatch(setting) }
        return connection
    }

    func secret(_ setting: Setting) -> Secret? {
        optionalText(setting).map { Secret($0) }
    }

    func backend(_ setting: Setting) -> SocketSettings.Backend {
        switch text(setting) {
        case "epoll": .epoll
        case "io_uring": .ring
        default: .automatic
        }
    }

    func integer(_ setting: Setting) -> Int {
        guard case .integer(let number) = values[setting.name]?.value else { mismatch(setting) }
        return Int(number)
    }

    func source(_ setting: Setting) -> InlineOrFile? {
        guard let value = values[setting.name]?.value else { return nil }
        guard case .source(let source) = value else { mismatch(setting) }
        return source
    }

    func claims(_ setting: Setting) -> ClaimExpectations {
        guard let claims = ClaimText.read(text(setting)) else { mismatch(setting) }
        return claims
    }

    /// The case of an enumeration whose raw values are the setting's words.
    func word<Word: RawRepresentable<String>>(_ setting: Setting) -> Word {
        guard let word = Word(rawValue: text(setting)) else { mismatch(setting) }
        return word
    }

    /// Nil where the setting says "without limit".
    func limit<Value: Equatable>(_ value: Value, none: Value) -> Value? {
        value == none ? nil : value
    }

    private func mismatch(_ setting: Setting) -> Never {
        preconditionFailure("\(setting.name) must hold a value of its type")
    }
}
