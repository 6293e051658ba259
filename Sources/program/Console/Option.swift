/// An option on the command line and in the manual.
public struct Option: Sendable, Equatable {
    /// Name without its dashes.
    public let name: String
    public let short: Character?
    /// Placeholder of the value in the manual, such as `DIR`; nil for a flag.
    public let valueName: String?
    public let isRepeatable: Bool
    public let help: String

    /// Returns an option without a value.
    public static func flag(_ name: String, short: Character? = nil, _ help: String) -> Option {
        Option(name: name, short: short, valueName: nil, isRepeatable: false, help: help)
    }

    /// Returns an option with a value. If it is given several times, the last one counts; for a repeatable option all
    /// count.
    public static func value(
        _ name: String, _ valueName: String, short: Character? = nil, isRepeatable: Bool = false, _ help: String
    ) -> Option {
        Option(name: name, short: short, valueName: valueName, isRepeatable: isRepeatable, help: help)
    }

    /// Spelling in the manual, such as `-f, --follow` or `--limit N`.
    public var synopsis: String {
        let short = short.map { "-\($0), " } ?? ""
        let value = valueName.map { " \($0)" } ?? ""
        return "\(short)--\(name)\(value)\(isRepeatable ? " ..." : "")"
    }
}

/// Options that several commands share.
extension Option {
    public static let help = Option.flag("help", short: "h", "Show this manual.")
    public static let json = Option.flag(
        "json", "Print one JSON object a line (NDJSON), with names that do not change.")
}

/// Options that belong together, under their own heading in the manual.
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

    /// Name in capitals, as in manuals.
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
