import Settings

/// Settings as options. Each setting that a command lists here can be given as a flag. All others come from the
/// environment and the file.
extension OptionGroup {
    /// All settings.
    public static let configuration = configuration(of: Setting.all)

    public static func configuration(of settings: [Setting]) -> OptionGroup {
        OptionGroup(
            title: "Configuration options",
            note: """
                Each can also be set in the environment (--data-dir as TIDEWIRE_DATA_DIR) or in tidewire.conf (as \
                data_dir); flags win over the environment, which wins over the file. Other users of the machine can see \
                flags, so secrets are better kept in the file or the environment.
                """,
            options: [.configurationFile] + settings.map(\.option))
    }
}

extension Option {
    public static let configurationFile = Option.value(
        "config", "FILE", "The configuration file, instead of ./tidewire.conf or /etc/tidewire/tidewire.conf.")
}

extension Setting {
    public var option: Option {
        let usual = defaultText.map { " Default: \($0)." } ?? ""
        return .value(flag, type.placeholder, summary + usual)
    }
}

extension SettingType {
    fileprivate var placeholder: String {
        switch self {
        case .text, .secret: "TEXT"
        case .path: "DIR"
        case .file: "FILE"
        case .boolean: "on|off"
        case .integer: "N"
        case .size: "SIZE"
        case .duration: "DURATION"
        case .choice(let words, _): words.joined(separator: "|")
        case .address: "HOST:PORT"
        case .slotName, .identifier, .nodeName: "NAME"
        case .connection: "URL"
        case .natsServers, .monitors: "URLS"
        case .inlineOrFile: "TEXT|FILE"
        case .claimValues: "JSON"
        }
    }
}

extension Arguments {
    /// Returns the configuration with this command's flags. A command passes the settings that it decides itself as
    /// `decided`; flags override them.
    public func configuration(
        _ terminal: Terminal, decided: [SettingOverride] = []
    ) throws(ConfigurationFailure) -> Configuration {
        let flags = Setting.all.compactMap { setting in
            value(of: setting.option).map { SettingOverride.flag(setting, $0) }
        }
        return try Configuration.load(
            overrides: decided + flags, file: value(of: .configurationFile), surroundings: terminal.surroundings)
    }
}
