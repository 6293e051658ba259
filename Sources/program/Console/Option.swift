/// An option as it is given on the command line and shown in a manual.
public struct Option: Sendable, Equatable {
    /// Without its dashes.
    public let name: String
    public let short: Character?
    /// How the manual calls the value, e.g. `DIR`; nil for an option that is only there or not.
    public let valueName: String?
    public let isRepeatable: Bool
    public let help: String

    /// An option that is only there or not.
    public static func flag(_ name: String, short: Character? = nil, _ help: String) -> Option {
        Option(name: name, short: short, valueName: nil, isRepeatable: false, help: help)
    }

    /// An option with a value. Of several the last one wins, unless it is repeatable: then all of them count.
    public static func value(
        _ name: String, _ valueName: String, short: Character? = nil, isRepeatable: Bool = false, _ help: String
    ) -> Option {
        Option(name: name, short: short, valueName: valueName, isRepeatable: isRepeatable, help: help)
    }

    /// `-f, --follow`, `--limit N`
    public var synopsis: String {
        let short = short.map { "-\($0), " } ?? ""
        let value = valueName.map { " \($0)" } ?? ""
        return "\(short)--\(name)\(value)\(isRepeatable ? " ..." : "")"
    }
}

/// What more than one command takes.
extension Option {
    public static let help = Option.flag("help", short: "h", "Show this manual.")
    public static let json = Option.flag("json", "Print one JSON object a line (NDJSON), with names that stay.")
}

/// Options that belong together, under a heading of their own in the manual.
public struct OptionGroup: Sendable {
    public let title: String
    public let note: String?
    public let options: [Option]
}

/// An argument that is not an option.
public struct Operand: Sendable {
    public enum Count: Sendable {
        case one, oneOrNone, any
    }

    /// In capitals, as manuals write it.
    public let name: String
    public let count: Count
    public let help: String

    public init(_ name: String, _ count: Count = .one, _ help: String) {
        self.name = name
        self.count = count
        self.help = help
    }

    public var synopsis: String {
        switch count {
        case .one: name
        case .oneOrNone: "[\(name)]"
        case .any: "[\(name)...]"
        }
    }
}
