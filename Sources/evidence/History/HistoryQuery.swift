import Bytes
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
    /// Also who came and went.
    public var includesPresence = false
    /// What operators did or wrote.
    public var includesMarks = false
    /// Rows that were read from the database.
    var includesKept = false
    /// Schemas that are wanted whatever their table was called, by fingerprint.
    var alsoWanted: Set<UInt64> = []
    /// Hashes of the rows that alone are wanted, and of rows that cannot be told; nil is all.
    var rows: Set<UInt64>?

    public init(from: HistoryBound? = nil, to: HistoryBound? = nil) {
        self.from = from
        self.to = to
    }

    /// Messages and truncates have no row, and messages no table.
    func wants(_ operation: Operation) -> Bool {
        operations.isEmpty || operations.contains(operation)
    }
}

/// A column that is to be hidden, or to be shown.
public struct ColumnMask: Sendable, Hashable {
    /// Nil is every table.
    public var schema: String?
    public var table: String?
    /// `*` is every column.
    public var column: String

    /// `email`, `users.email`, `public.users.email`, with quotes where names need them; `*` for a column is all of them.
    public init?(_ text: String) {
        guard let parts = QualifiedName.parts(text), (1...3).contains(parts.count) else { return nil }
        column = parts[parts.count - 1]
        table = parts.count > 1 ? parts[parts.count - 2] : nil
        schema = parts.count > 2 ? parts[0] : nil
    }

    public func covers(_ column: String, of table: TableName) -> Bool {
        (self.column == "*" || column == self.column) && (self.table ?? table.name) == table.name
            && (schema ?? table.schema) == table.schema
    }
}

extension ColumnMask {
    /// `*`
    public var isEverything: Bool { column == "*" && table == nil }
}

extension ColumnMask: CustomStringConvertible {
    public var description: String { [schema, table, column].compactMap { $0 }.joined(separator: ".") }
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

    /// What a text would have to be, to be a value of the type; nil where it may be one, or nothing is known of the type.
    public static func expected(_ text: String, type: UInt32) -> String? {
        switch type {
        case 20, 21, 23, 26: Int64(text) == nil ? "a whole number" : nil
        case 700, 701, 1700: isNumber(text) ? nil : "a number"
        case 2950: isUUID(text) ? nil : "a uuid"
        case 16: ["t", "f"].contains(boolean(text)) ? nil : "true or false"
        default: nil
        }
    }

    /// PostgreSQL writes no blanks; words are NaN and Infinity, in any case here.
    private static func isNumber(_ text: String) -> Bool {
        !text.contains { $0.isWhitespace } && Double(text) != nil
    }

    private static func isUUID(_ text: String) -> Bool {
        let normal = uuid(text)
        return normal.utf8.count == 36 && normal.allSatisfy { $0 == "-" || $0.isHexDigit }
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

/// A relation as one query sees it: decided once, used for each of its rows, of which none costs more than a reference to it.
final class PreparedRelation {
    let known: RecordedRelation
    let isWanted: Bool
    let masked: MaskedRelation
    /// Nil when it lacks a column of a condition, so that no row of it can fulfil that.
    let conditions: [(column: Int, condition: RowCondition)]?

    /// - Parameter names: what the table is called elsewhere in the log.
    init(_ known: RecordedRelation, for query: HistoryQuery, _ masking: Masking, alsoCalled names: Set<TableName>) {
        let relation = known.relation
        self.known = known
        isWanted =
            query.tables.isEmpty || query.tables.contains(known.table) || query.alsoWanted.contains(known.fingerprint)
        masked = MaskedRelation(relation, masking, alsoCalled: names)
        let found = query.conditions.compactMap { condition in
            relation.column(named: condition.column).map { (column: $0, condition: condition) }
        }
        conditions = found.count == query.conditions.count ? found : nil
    }

    /// Whether it may be of one of these rows, by its key in place: most rows of a table are others, and not worth taking
    /// apart. Never falsely not.
    func mayConcern(_ rows: Set<UInt64>, _ change: borrowing Change) -> Bool {
        if change.operation == .truncate || known.keyColumns.isEmpty { return true }
        if let new = change.new, mayConcern(rows, new) { return true }
        if let old = change.old, mayConcern(rows, old) { return true }
        return false
    }

    func mayConcern(_ rows: Set<UInt64>, _ row: borrowing Tuple) -> Bool {
        rows.contains(key(row) ?? known.unkeyed)
    }

    /// As `RecordedRelation.rowKey`.
    private func key(_ tuple: borrowing Tuple) -> UInt64? {
        var hash = RowKey.row(table: known.tableKey)
        var columns = tuple.columns()
        var (index, wanted) = (0, 0)
        while wanted < known.keyColumns.count {
            guard let value = try? columns.next() else { return nil }
            if index == known.keyColumns[wanted] {
                guard case .text(let bytes) = copy value else { return nil }
                hash.combine(bytes)
                wanted += 1
            }
            index += 1
        }
        return hash.value
    }

    func fulfils(_ change: RecordedChange) -> Bool {
        guard let conditions else { return false }
        return conditions.allSatisfy { column, condition in
            // Compares the shown value, so that guesses do not reveal what is masked.
            let shown = change.value(of: column).map { masked.shown($0, at: column) }
            return condition.holds(for: shown, type: known.relation.columns[column].typeOID)
        }
    }
}
