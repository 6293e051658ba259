import Change

/// What is asked of the log: a window, and which of its changes.
public struct HistoryQuery: Sendable {
    /// Nil is from the oldest on.
    public var from: HistoryBound?
    /// Half-open: what begins here is not shown. Nil is without end.
    public var to: HistoryBound?
    /// Empty is all of them, as for operations.
    public var tables: [TableName] = []
    public var operations: Set<Operation> = []
    /// All must hold.
    public var conditions: [RowCondition] = []
    public var masks: [ColumnMask] = []
    /// Also who came and went.
    public var includesPresence = false

    public init(from: HistoryBound? = nil, to: HistoryBound? = nil) {
        self.from = from
        self.to = to
    }

    /// Messages and truncates have no row, and messages no table.
    func wants(_ operation: Operation) -> Bool {
        operations.isEmpty || operations.contains(operation)
    }
}

/// Columns whose values are not shown.
public struct ColumnMask: Sendable, Hashable {
    /// Nil is every table.
    public var schema: String?
    public var table: String?
    public var column: String

    /// `email`, `users.email`, `public.users.email`, with quotes where names need them.
    public init?(_ text: String) {
        guard let parts = QualifiedName.parts(text), (1...3).contains(parts.count) else { return nil }
        column = parts[parts.count - 1]
        table = parts.count > 1 ? parts[parts.count - 2] : nil
        schema = parts.count > 2 ? parts[0] : nil
    }

    public func covers(_ relation: Relation, _ column: Column) -> Bool {
        column.name == self.column && (table ?? relation.name) == relation.name
            && (schema ?? relation.schema) == relation.schema
    }

    func columns(of relation: Relation) -> [Int] {
        relation.columns.indices.filter { covers(relation, relation.columns[$0]) }
    }
}

/// A condition on one column of the row, or of the old row where it was deleted.
public struct RowCondition: Sendable, Hashable {
    public enum Test: Sendable, Hashable {
        case equals(String)
        case differs(String)
        case isNull
        case isNotNull
    }

    public static let forms = "column=value, column!=value, 'column is null' or 'column is not null'"

    public var column: String
    public var test: Test

    public init(column: String, _ test: Test) {
        self.column = column
        self.test = test
    }

    /// Nil for a text of no such form. `column=` compares with the empty string.
    public init?(_ text: String) {
        for (suffix, test) in [(" is not null", Test.isNotNull), (" is null", .isNull)]
        where text.lowercased().hasSuffix(suffix) && !text.contains("=") {
            guard let name = Self.name(text.dropLast(suffix.count)) else { return nil }
            self.init(column: name, test)
            return
        }
        guard let sign = Self.sign(in: text) else { return nil }
        let value = String(text[text.index(after: sign)...])
        let before = text[..<sign]
        let isNegated = before.hasSuffix("!")
        guard let name = Self.name(isNegated ? before.dropLast() : before) else { return nil }
        self.init(column: name, isNegated ? .differs(value) : .equals(value))
    }

    /// The first equals sign that is not inside a quoted name.
    private static func sign(in text: String) -> String.Index? {
        var isQuoted = false
        return text.indices.first { index in
            if text[index] == "\"", text.first == "\"" { isQuoted.toggle() }
            return text[index] == "=" && !isQuoted
        }
    }

    private static func name(_ text: Substring) -> String? {
        let trimmed = String(text.drop { $0 == " " }.reversed().drop { $0 == " " }.reversed())
        if !trimmed.hasPrefix("\"") { return trimmed.isEmpty ? nil : trimmed }
        guard let parts = QualifiedName.parts(trimmed), parts.count == 1 else { return nil }
        return parts[0]
    }

    /// As in SQL, a comparison with NULL, or with a value that is not known, does not hold.
    func holds(for value: RowValue?, type: UInt32) -> Bool {
        switch (test, value) {
        case (_, nil), (_, .unchanged): false
        case (.isNull, .null): true
        case (.isNull, _): false
        case (.isNotNull, .null): false
        case (.isNotNull, _): true
        case (_, .null): false
        case (.equals(let wanted), .some(let value)): value.plainText == ValueSpelling.normal(wanted, type: type)
        case (.differs(let wanted), .some(let value)): value.plainText != ValueSpelling.normal(wanted, type: type)
        }
    }
}

/// PostgreSQL writes a value in one way and reads it in many. Of those, the ones people type are brought into its form.
public enum ValueSpelling {
    public static func normal(_ text: String, type: UInt32) -> String {
        switch type {
        case 2950: uuid(text)
        case 16: boolean(text)
        default: text
        }
    }

    private static func uuid(_ text: String) -> String {
        let digits = text.lowercased().filter { $0 != "-" && $0 != "{" && $0 != "}" }
        guard digits.utf8.count == 32, digits.allSatisfy(\.isHexDigit) else { return text.lowercased() }
        var result = ""
        for (index, digit) in digits.enumerated() {
            if [8, 12, 16, 20].contains(index) { result.append("-") }
            result.append(digit)
        }
        return result
    }

    private static func boolean(_ text: String) -> String {
        switch text.lowercased() {
        case "true", "t", "yes", "y", "on", "1": "t"
        case "false", "f", "no", "n", "off", "0": "f"
        default: text
        }
    }
}

/// A relation as one query sees it: decided once, used for each of its rows.
struct PreparedRelation {
    let known: RecordedRelation
    let isWanted: Bool
    let masked: Set<Int>
    /// Nil when it lacks a column of a condition, so that no row of it can fulfil that.
    let conditions: [(column: Int, condition: RowCondition)]?

    init(_ known: RecordedRelation, for query: HistoryQuery) {
        let relation = known.relation
        self.known = known
        isWanted = query.tables.isEmpty || query.tables.contains(known.table)
        masked = Set(query.masks.flatMap { $0.columns(of: relation) })
        let found = query.conditions.compactMap { condition in
            relation.column(named: condition.column).map { (column: $0, condition: condition) }
        }
        conditions = found.count == query.conditions.count ? found : nil
    }

    func fulfils(_ change: RecordedChange) -> Bool {
        guard let conditions else { return false }
        return conditions.allSatisfy { column, condition in
            condition.holds(for: change.value(of: column), type: known.relation.columns[column].typeOID)
        }
    }
}
