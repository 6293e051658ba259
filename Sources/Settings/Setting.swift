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
    public let isSecret: Bool
    /// Other environment variables that are read for it, if its own is not set.
    public let aliases: [String]

    init(
        _ name: String, _ group: Group, _ type: SettingType, default defaultText: String? = nil, isSecret: Bool = false,
        aliases: [String] = [], _ summary: String
    ) {
        self.name = name
        self.group = group
        self.type = type
        self.defaultText = defaultText
        self.summary = summary
        self.isSecret = isSecret
        self.aliases = aliases
    }

    /// `data_dir` → `data-dir`, without the dashes before it.
    public var flag: String {
        String(name.map { $0 == "_" ? "-" : $0 })
    }

    /// `data_dir` → `TIDEWIRE_DATA_DIR`.
    public var environmentName: String {
        Self.environmentPrefix + name.uppercased()
    }

    static let environmentPrefix = "TIDEWIRE_"

    public static func named(_ name: String) -> Setting? {
        all.first { $0.name == name }
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
