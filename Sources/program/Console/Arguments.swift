import Settings

/// Command-line arguments of a command, separated into options and operands.
public struct Arguments {
    private var given: [String: [String]] = [:]
    public private(set) var operands: [String] = []
    /// Full name of the command: `tidewire log export`.
    public internal(set) var command = ""

    /// True if the flag is given. A flag is an option without a value.
    public func has(_ option: Option) -> Bool {
        given[option.name]?.last.map { $0 == "true" } ?? false
    }

    public func value(of option: Option) -> String? {
        given[option.name]?.last
    }

    public func values(of option: Option) -> [String] {
        given[option.name] ?? []
    }

    /// Returns the option's value, parsed by the same rules as a setting of that type.
    public func value(of option: Option, as type: SettingType) throws(UsageError) -> SettingValue? {
        guard let text = value(of: option) else { return nil }
        do throws(MalformedValue) {
            return try type.parse(text)
        } catch {
            throw UsageError("--\(option.name): expected \(error.expected)")
        }
    }

    mutating func give(_ option: Option, _ value: String) {
        given[option.name, default: []].append(value)
    }

    fileprivate mutating func give(operand: String) {
        operands.append(operand)
    }
}

/// Parser of the words after a command: `--name value`, `--name=value`, `-n value`, `-nvalue`, and `--` before operands
/// that look like options.
public struct ArgumentParser {
    private let options: [Option]
    private let operands: [Operand]
    private var rest: ArraySlice<String>
    private var arguments = Arguments()

    public static func parse(
        _ words: some Sequence<String>, options: [Option], operands: [Operand]
    ) throws(UsageError) -> Arguments {
        var parser = ArgumentParser(options: options, operands: operands, rest: ArraySlice(words))
        return try parser.parse()
    }

    private mutating func parse() throws(UsageError) -> Arguments {
        while let word = rest.popFirst() {
            if word == "--" {
                rest.forEach { arguments.give(operand: $0) }
                break
            } else if word.hasPrefix("--") {
                try takeLong(word.dropFirst(2))
            } else if Self.looksLikeShortOption(word) {
                try takeShort(word.dropFirst())
            } else {
                arguments.give(operand: word)
            }
        }
        try checkOperands()
        return arguments
    }

    private mutating func takeLong(_ word: Substring) throws(UsageError) {
        let parts = word.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
        guard let option = options.first(where: { $0.name == parts[0] }) else { throw unknown(parts[0]) }
        try take(option, attached: parts.count == 2 ? parts[1] : nil)
    }

    private mutating func takeShort(_ word: Substring) throws(UsageError) {
        guard let letter = word.first, let option = options.first(where: { $0.short == letter }) else {
            throw UsageError("there is no option -\(word.prefix(1))")
        }
        let attached = word.dropFirst()
        if option.valueName == nil && !attached.isEmpty {
            try take(option, attached: nil)
            return try takeShort(attached)
        }
        try take(option, attached: attached.isEmpty ? nil : String(attached))
    }

    private mutating func take(_ option: Option, attached: String?) throws(UsageError) {
        arguments.give(option, option.valueName == nil ? try flag(option, attached) : try value(option, attached))
    }

    private func flag(_ option: Option, _ attached: String?) throws(UsageError) -> String {
        switch attached {
        case nil, "true": return "true"
        case "false": return "false"
        default: throw UsageError("--\(option.name) takes no value")
        }
    }

    /// Returns the option's value. A value that begins with two dashes must be attached, as in `--name=--value`, so
    /// that the parser notices a forgotten value.
    private mutating func value(_ option: Option, _ attached: String?) throws(UsageError) -> String {
        if let attached { return attached }
        guard let next = rest.first, !next.hasPrefix("--") else {
            throw UsageError("--\(option.name) needs a value: \(option.valueName ?? "VALUE")")
        }
        return rest.removeFirst()
    }

    /// True if the word is a short option. `-5` and `-15m` are values, and a single dash often means a file.
    private static func looksLikeShortOption(_ word: String) -> Bool {
        guard word.hasPrefix("-"), let second = word.dropFirst().first else { return false }
        return !second.isNumber
    }

    private func unknown(_ name: String) -> UsageError {
        let hint = NearestName.to(name, among: options.map(\.name)).map { "; did you mean --\($0)?" }
        return UsageError("there is no option --\(name)\(hint ?? "")")
    }

    private func checkOperands() throws(UsageError) {
        let required = operands.filter { $0.count == .one }
        if arguments.operands.count < required.count {
            throw UsageError("\(required[arguments.operands.count].name) is missing")
        }
        let isOpenEnded = operands.contains { $0.count == .any }
        if !isOpenEnded && arguments.operands.count > operands.count {
            throw UsageError("\"\(arguments.operands[operands.count])\" is one argument too many")
        }
    }
}
