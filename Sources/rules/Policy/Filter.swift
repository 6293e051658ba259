/// Operators of filters, as clients write them after a column.
public enum FilterOperator: String, Sendable, Hashable, CaseIterable {
    case eq, neq, lt, lte, gt, gte
    case `in`
    case like, ilike, match, imatch
    case `is`, isdistinct
    // The following operators for arrays, jsonb and ranges exist in PostgREST but not in Supabase Realtime.
    /// The column contains the value (`@>`).
    case cs
    /// The column is contained in the value (`<@`).
    case cd
    /// The column overlaps the value (`&&`).
    case ov
    /// The column lies strictly left of the value (`<<`).
    case sl
    /// The column lies strictly right of the value (`>>`).
    case sr
    /// The column does not extend to the right of the value (`&<`).
    case nxr
    /// The column does not extend to the left of the value (`&>`).
    case nxl
    /// The column is adjacent to the value (`-|-`).
    case adj

    /// True if the operator's value is a literal of an array, range or JSON, in which a comma does not end the
    /// condition.
    var takesLiteral: Bool {
        switch self {
        case .cs, .cd, .ov, .sl, .sr, .nxr, .nxl, .adj: true
        default: false
        }
    }
}

/// Condition of a filter: `column=op.value` or `column=not.op.value`. The column may be one of the row before the change
/// (`old.column`), or the word `changed` may stand in its place.
public struct FilterCondition: Sendable, Hashable {
    public var column: String
    public var comparison: FilterOperator
    /// Value without its quotes. For `in`, the list in the syntax of array literals, such as `{new,open}`.
    public var value: String
    public var isNegated: Bool
    /// True if the condition has no operator: `changed=status`. `value` is then the name of a column.
    public var isBare: Bool

    public init(
        _ column: String, _ comparison: FilterOperator, _ value: String, isNegated: Bool = false, isBare: Bool = false
    ) {
        assert(!isBare || column == FilterCondition.changed && comparison == .in, "only changes need no operator")
        self.column = column
        self.comparison = comparison
        self.value = value
        self.isNegated = isNegated
        self.isBare = isBare
    }

    /// Word in place of a column that asks which columns a change has changed: `changed=status`.
    static let changed = "changed"
    /// Beginning of a name that means a column of the row before the change: `old.status`.
    static let oldPrefix = "old."

    /// The condition as a client writes it.
    public var written: String {
        let negation = isNegated ? "not." : ""
        if isBare {
            let isPlain = value.utf8.allSatisfy {
                $0 >= 0x80 || !" !\"#$%&'()*+,-./:;<=>?@[\\]^`{|}~".utf8.contains($0)
            }
            let list = ArrayLiteral.text([Array(value.utf8)]).dropFirst().dropLast()
            return "\(column)=\(negation)" + (isPlain ? value : "in.(\(list))")
        }
        let list = comparison == .in ? "(" + value.dropFirst().dropLast() + ")" : value
        return "\(column)=\(negation)\(comparison.rawValue).\(list)"
    }
}

/// Filter of a subscription as a tree. It has been parsed, but not checked against a table.
public indirect enum Filter: Sendable, Hashable {
    case condition(FilterCondition)
    case all([Filter])
    case any([Filter])
    /// Negation of a group. A condition has a flag of its own for negation.
    case not(Filter)

    /// Limits for a filter.
    public struct Bounds: Sendable {
        public var bytes: Int
        public var conditions: Int
        /// Maximum depth of nested groups.
        public var depth: Int

        public init(bytes: Int, conditions: Int, depth: Int) {
            self.bytes = bytes
            self.conditions = conditions
            self.depth = depth
        }
    }

    /// Parses the text of a filter. Nil if the text is blank.
    public static func parse(_ text: String, within bounds: Bounds) throws(FilterError) -> Filter? {
        guard text.utf8.count <= bounds.bytes else { throw FilterError("filter is longer than \(bounds.bytes) bytes") }
        guard !text.utf8.contains(0) else { throw FilterError("filter contains a NUL character") }
        var parser = FilterParser(Array(text.utf8), within: bounds)
        return try parser.filter()
    }

    /// All conditions in the filter, from left to right.
    public var conditions: [FilterCondition] {
        switch self {
        case .condition(let condition): [condition]
        case .all(let parts), .any(let parts): parts.flatMap(\.conditions)
        case .not(let part): part.conditions
        }
    }
}

/// Error in the text of a filter, worded as by Supabase Realtime.
public struct FilterError: Error, Sendable, Hashable {
    public var detail: String

    public init(_ detail: String) { self.detail = detail }

    /// Message for the client.
    public var message: String { "Error parsing `filter` params: " + detail }

    /// Creates an error that lists the found parts of the text, as Elixir's `inspect` prints them. Clients expect this
    /// form.
    static func found(_ parts: [ArraySlice<UInt8>]) -> FilterError {
        FilterError("[" + parts.map { Inspection.text(of: $0) }.joined(separator: ", ") + "]")
    }
}

/// Conversion of strings to the form in which Elixir's `inspect` prints them.
public enum Inspection {
    public static func text(of text: String) -> String { self.text(of: Array(text.utf8)[...]) }

    static func text(of bytes: ArraySlice<UInt8>) -> String {
        let text = String(decoding: bytes, as: UTF8.self)
        guard text.unicodeScalars.allSatisfy(isPrintable) else { return binary(bytes) }
        var result = "\""
        var rest = text.unicodeScalars[...]
        while let scalar = rest.popFirst() {
            if scalar == "#", rest.first == "{" { result += "\\" }
            result += escape(scalar) ?? String(scalar)
        }
        return result + "\""
    }

    private static func escape(_ scalar: Unicode.Scalar) -> String? {
        switch scalar.value {
        case 0x07: "\\a"
        case 0x08: "\\b"
        case 0x09: "\\t"
        case 0x0a: "\\n"
        case 0x0b: "\\v"
        case 0x0c: "\\f"
        case 0x0d: "\\r"
        case 0x1b: "\\e"
        case 0x22: "\\\""
        case 0x5c: "\\\\"
        case 0x7f: "\\d"
        default: nil
        }
    }

    /// True if Elixir's `String.printable?` accepts the character.
    private static func isPrintable(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        case 0x07...0x0d, 0x1b, 0x20...0x7f: true
        case 0xa0...0xd7ff, 0xe000...0xfffd, 0x10000...0x10ffff: true
        default: false
        }
    }

    /// Returns the bytes as `inspect` prints a binary, with at most fifty of them.
    private static func binary(_ bytes: ArraySlice<UInt8>) -> String {
        let shown = bytes.prefix(50).map { String($0) } + (bytes.count > 50 ? ["..."] : [])
        return "<<" + shown.joined(separator: ", ") + ">>"
    }
}
