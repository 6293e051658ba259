/// An option as it is given on the command line and shown in a manual.
struct Option: Sendable, Equatable {
    /// Without its dashes.
    let name: String
    let short: Character?
    /// How the manual calls the value, e.g. `DIR`; nil for an option that is only there or not.
    let valueName: String?
    let isRepeatable: Bool
    let help: String

    /// An option that is only there or not.
    static func flag(_ name: String, short: Character? = nil, _ help: String) -> Option {
        Option(name: name, short: short, valueName: nil, isRepeatable: false, help: help)
    }

    /// An option with a value. Of several the last one wins, unless it is repeatable: then all of them count.
    static func value(
        _ name: String, _ valueName: String, short: Character? = nil, isRepeatable: Bool = false, _ help: String
    ) -> Option {
        Option(name: name, short: short, valueName: valueName, isRepeatable: isRepeatable, help: help)
    }

    /// `-f, --follow`, `--limit N`
    var synopsis: String {
        let short = short.map { "-\($0), " } ?? ""
        let value = valueName.map { " \($0)" } ?? ""
        return "\(short)--\(name)\(value)\(isRepeatable ? " ..." : "")"
    }
}

/// What more than one command takes.
extension Option {
    static let help = Option.flag("help", short: "h", "Show this manual.")
    static let json = Option.flag("json", "Print one JSON object a line (NDJSON), with names that stay.")
}

/// Options that belong together, under a heading of their own in the manual.
struct OptionGroup: Sendable {
    let title: String
    let note: String?
    let options: [Option]
}

/// An argument that is not an option.
struct Operand: Sendable {
    enum Count: Sendable {
        case one, oneOrNone, any
    }

    /// In capitals, as manuals write it.
    let name: String
    let count: Count
    let help: String

    init(_ name: String, _ count: Count = .one, _ help: String) {
        self.name = name
        self.count = count
        self.help = help
    }

    var synopsis: String {
        switch count {
        case .one: name
        case .oneOrNone: "[\(name)]"
        case .any: "[\(name)...]"
        }
    }
}
