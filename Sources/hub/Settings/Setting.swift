/// Setting that the operator can change: its name in `tidewire.conf` and its allowed values. The names of its flag and
/// its environment variable are derived from its name.
public struct Setting: Sendable {
    public enum Group: String, CaseIterable, Sendable {
        case database = "Database"
        case eventLog = "Event log"
        case cluster = "Cluster"
        case clients = "Clients"
        case tokens = "Tokens"
        case projects = "Projects"
        case limits = "Limits for clients"
        case diagnostics = "Diagnostics"
    }

    public let name: String
    public let group: Group
    public let type: SettingType
    /// Default as in the configuration file; nil if there is none, or if it depends on the user that runs the hub.
    public let defaultText: String?
    /// Meaning in one sentence, for tables and help.
    public let summary: String
    /// Environment variables of the reference container with the same meaning; later ones replace earlier ones.
    /// Durations in them are in milliseconds.
    let aliases: [String]

    /// Name of the flag without its dashes: `data_dir` → `data-dir`.
    public var flag: String {
        String(name.map { $0 == "_" ? "-" : $0 })
    }

    /// Name of the environment variable: `data_dir` → `TIDEWIRE_DATA_DIR`.
    public var environmentName: String {
        Self.environmentPrefix + name.uppercased()
    }

    static let environmentPrefix = "TIDEWIRE_"
}

extension Setting {
    /// All settings, in the order of their declaration.
    public static let all = Mirror(reflecting: AllSettings.declared).children.map { child in
        guard let declaration = child.value as? any SettingDeclaration else {
            preconditionFailure("\(child.label ?? "a property of AllSettings") must declare a setting")
        }
        return declaration.setting
    }

    public static func named(_ name: String) -> Setting? {
        all.first { $0.name == name }
    }

    /// Creates the setting that a property of `AllSettings` declares.
    public init<Value>(_ key: SettingKey<Value>) {
        self = AllSettings.declared[keyPath: key].setting
    }
}

extension Setting: Hashable {
    /// True if the names are equal, because names are unique.
    public static func == (left: Setting, right: Setting) -> Bool {
        left.name == right.name
    }

    public func hash(into hasher: inout Hasher) {
        hasher.combine(name)
    }
}
