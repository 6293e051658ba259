import TidewireClient

/// Parser and evaluator of filters for the hub in memory. It supports comparisons, `in`, `is.null`, `not`, `and` and
/// `or`. A condition of another kind matches no row.
struct FilterText {
    private let parts: [String]

    init(_ text: String) { parts = Self.split(text) }

    func matches(_ record: [String: JSONValue]) -> Bool {
        parts.allSatisfy { Self.condition($0, separator: "=", record) ?? false }
    }

    /// Splits a text at those commas that are outside of parentheses and quotes.
    private static func split(_ text: String) -> [String] {
        var parts = [""]
        var (depth, isQuoted, isEscaped) = (0, false, false)
        for character in text {
            if isEscaped {
                isEscaped = false
            } else if isQuoted {
                if character == "\\" { isEscaped = true }
                if character == "\"" { isQuoted = false }
            } else {
                switch character {
                case "\"": isQuoted = true
                case "(": depth += 1
                case ")": depth -= 1
                case "," where depth == 0:
                    parts.append("")
                    continue
                default: break
                }
            }
            parts[parts.count - 1].append(character)
        }
        return parts
    }

    /// Evaluates a condition on a row. Nil means SQL's value "unknown".
    private static func condition(_ text: String, separator: Character, _ record: [String: JSONValue]) -> Bool? {
        for (word, isAll) in [("and", true), ("or", false)] {
            for negation in ["", "not."] {
                let head = negation + word + (separator == "=" ? "=(" : "(")
                guard text.hasPrefix(head), text.hasSuffix(")") else { continue }
                let inner = split(String(text.dropFirst(head.count).dropLast()))
                let answers = inner.map { condition($0, separator: ".", record) ?? false }
                let answer = isAll ? answers.allSatisfy { $0 } : answers.contains(true)
                return negation.isEmpty ? answer : !answer
            }
        }
        guard let end = text.firstIndex(of: separator) else { return nil }
        var rest = text[text.index(after: end)...]
        let isNegated = rest.hasPrefix("not.")
        if isNegated { rest = rest.dropFirst(4) }
        guard let dot = rest.firstIndex(of: ".") else { return nil }
        let value = String(rest[rest.index(after: dot)...])
        let answer = compare(record[String(text[..<end])] ?? .null, String(rest[..<dot]), value)
        return isNegated ? answer.map { !$0 } : answer
    }

    private static func compare(_ column: JSONValue, _ operation: String, _ value: String) -> Bool? {
        if operation == "is" { return value == "null" ? column.isNull : column == .bool(value == "true") }
        guard let own = text(column) else { return nil }
        if operation == "in" {
            return split(String(value.dropFirst().dropLast())).contains { Self.order(own, unquoted($0)) == 0 }
        }
        let order = Self.order(own, unquoted(value))
        switch operation {
        case "eq": return order == 0
        case "neq": return order != 0
        case "lt": return order < 0
        case "lte": return order <= 0
        case "gt": return order > 0
        case "gte": return order >= 0
        default: return nil
        }
    }

    private static func text(_ value: JSONValue) -> String? {
        switch value {
        case .string(let text), .number(let text): text
        case .bool(let value): value ? "true" : "false"
        case .null, .array, .object: nil
        }
    }

    private static func unquoted(_ value: String) -> String {
        guard value.hasPrefix("\""), value.hasSuffix("\""), value.count > 1 else { return value }
        return (try? JSONValue(parsing: value))?.text ?? value
    }

    /// Compares two values: numbers as numbers, other values as text without regard to upper and lower case. The result
    /// is negative if `one` is smaller, and 0 if both are equal.
    private static func order(_ one: String, _ other: String) -> Int {
        if let one = Double(one), let other = Double(other) { return one < other ? -1 : one > other ? 1 : 0 }
        let (one, other) = (one.lowercased(), other.lowercased())
        return one < other ? -1 : one > other ? 1 : 0
    }
}
