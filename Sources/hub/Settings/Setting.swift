/// One thing the operator can decide: its name in `tidewire.conf`, from which the names of its flag and its environment
/// variable follow, and what it may hold.
public struct Setting: Sendable {
    public enum Group: String, CaseIterable, Sendable {
        case database = "Database"
        case eventLog = "Event log"
        case clients = "Clients"
        case tokens = "Tokens"
        case projects = "Projects"
        case limits = "Limits for clients"
        case diagnostics = "Diagnostics"
    }

    public let name: String
    public let group: Group
    public let type: SettingType
    /// In the words of the configuration file; nil when there is none, or when it depends on who runs the hub.
    public let defaultText: String?
    /// One line, for tables and help.
    public let summary: String
    /// Variables of the reference's container that say the same, the weaker ones first. Durations are milliseconds there.
    let aliases: [String]

    /// `data_dir` → `data-dir`, without the dashes before it.
    public var flag: String {
        String(name.map { $0 == "_" ? "-" : $0 })
    }

    /// `data_dir` → `TIDEWIRE_DATA_DIR`.
    public var environmentName: String {
        Self.environmentPrefix + name.uppercased()
    }

    static let environmentPrefix = "TIDEWIRE_"
}

extension Setting {
    /// Every setting there is, in the order of its declaration.
    public static let all = Mirror(reflecting: AllSettings.declared).children.map { child in
        guard let declaration = child.value as? any SettingDeclaration else {
            preconditionFailure("\(child.label ?? "a property of AllSettings") must declare a setting")
        }
        return declaration.setting
    }

    public static func named(_ name: String) -> Setting? {
        all.first { $0.name == name }
    }

    /// The setting that a property of `AllSettings` declares.
    public init<Value>(_ key: SettingKey<Value>) {
        self = AllSettings.declared[keyPath: key].setting
    }
}

extension Setting: Hashable {
    /// Names are unique, so the name is the setting.
    public static func == (left: Setting, right: Setting) -> Bool {
        left.name == right.name
    }

    public func hash(into hasher: inout Hasher) {
        hasher.combine(name)
    }
}
