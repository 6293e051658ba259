/// Source of a setting's value.
public enum SettingSource: Sendable, Equatable, CustomStringConvertible {
    case builtIn
    case file(path: String, line: Int)
    /// Environment variables from which the value was read; several if they make up the value together.
    case environment([String])
    case flag(String)
    /// Command that set the value, such as `tidewire dev` for its own database.
    case command(String)

    public var description: String {
        switch self {
        case .builtIn: "default"
        case .file(let path, let line): "\(path):\(line)"
        case .environment(let names): "environment \(names.joined(separator: ", "))"
        case .flag(let name): name
        case .command(let name): name
        }
    }
}

/// Value of a setting that is given neither in the environment nor in a file.
public struct SettingOverride: Sendable {
    let setting: Setting
    let text: String
    let source: SettingSource

    public init(_ setting: Setting, _ text: String, from source: SettingSource) {
        self.setting = setting
        self.text = text
        self.source = source
    }

    /// Returns the override of a setting that a command's option makes.
    public static func flag(_ setting: Setting, _ text: String) -> SettingOverride {
        SettingOverride(setting, text, from: .flag("--\(setting.flag)"))
    }
}

/// Error with all problems of a configuration, each with its place.
public struct ConfigurationFailure: Error, Equatable, CustomStringConvertible {
    public struct Problem: Sendable, Equatable, CustomStringConvertible {
        public let place: String
        public let message: String

        public var description: String {
            "\(place): \(message)"
        }
    }

    public let problems: [Problem]

    public var description: String {
        problems.map(\.description).joined(separator: "\n")
    }
}
