import Bytes
import Change

/// A query to the log: a window, and a selection of its changes.
public struct HistoryQuery: Sendable {
    /// Start of the window; nil means the oldest entry.
    public var from: HistoryBound?
    /// End of the window, exclusive; nil means no end.
    public var to: HistoryBound?
    /// Wanted tables; empty means all.
    public var tables: [TableName] = []
    /// Wanted operations; empty means all.
    public var operations: Set<Operation> = []
    /// Conditions on the row; all must hold.
    public var conditions: [RowCondition] = []
    /// True to include presence events.
    public var includesPresence = false
    /// True to include the marks of operators.
    public var includesMarks = false
    /// True to include rows that were read from the database.
    var includesKept = false
    /// Fingerprints of schemas that are wanted under any name of their table.
    var alsoWanted: Set<UInt64> = []
    /// Hashes of the wanted rows, and of rows without a known key; nil means all rows.
    var rows: Set<UInt64>?

    public init(from: HistoryBound? = nil, to: HistoryBound? = nil) {
        self.from = from
        self.to = to
    }

    /// True if the query wants changes of this operation.
    func wants(_ operation: Operation) -> Bool {
        operations.isEmpty || operations.contains(operation)
    }
}

/// A column to hide or to show.
public struct ColumnMask: Sendable, Hashable {
    /// Schema of the column's table; nil means every schema.
    public var schema: String?
    /// Name of the column's table; nil means every table.
    public var table: String?
    /// Name of the column; `*` means every column.
    public var column: String

    /// Parses `email`, `users.email` or `public.users.email`, with quotes if names need them. `*` means all columns.
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
    /// True for `*`, which means every column of every table.
    public var isEverything: Bool { column == "*" && table == nil }
}

extension ColumnMask: CustomStringConvertible {
    public var description: String { [schema, table, column].compactMap { $0 }.joined(separator: ".") }
}

/// A condition on one column of the row, or of the old row for a delete.
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

    /// Parses a condition; nil if the text has none of the `forms`. `column=` compares with the empty string.
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

    /// Returns the first equals sign that is not inside a quoted name.
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

    /// True if the condition holds. As in SQL, a comparison with NULL, or with an unknown value, does not hold.
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

/// Normalization of values that people type. PostgreSQL reads several spellings of a value, but writes only one.
/// `normal` converts a text into that one.
public enum ValueSpelling {
    public static func normal(_ text: String, type: UInt32) -> String {
        switch type {
        case 2950: uuid(text)
        case 16: boolean(text)
        default: text
        }
    }

    /// Returns a description of the values that the type allows, if the text cannot be one of them. Returns nil if the
    /// text may be a value, or if the type is unknown.
    public static func expected(_ text: String, type: UInt32) -> String? {
        switch type {
        case 20, 21, 23, 26: Int64(text) == nil ? "a whole number" : nil
        case 700, 701, 1700: isNumber(text) ? nil : "a number"
        case 2950: isUUID(text) ? nil : "a uuid"
        case 16: ["t", "f"].contains(boolean(text)) ? nil : "true or false"
        default: nil
        }
    }

    /// True if the text is a number without blanks. NaN and Infinity count too, in any case.
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

/// Relation prepared for one query, once for all its rows. Each row costs no more than a reference to it.
final class PreparedRelation {
    let known: RecordedRelation
    let isWanted: Bool
    let masked: MaskedRelation
    /// Conditions with their columns; nil if the relation lacks one of the columns, so that no row can fulfil them.
    let conditions: [(column: Int, condition: RowCondition)]?

    /// Prepares the relation.
    ///
    /// - Parameter names: names of the table elsewhere in the log.
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

    /// False only if the change certainly concerns none of these rows. The function compares keys in place, because
    /// most changes concern other rows and are not worth decoding.
    func mayConcern(_ rows: Set<UInt64>, _ change: borrowing Change) -> Bool {
        if change.operation == .truncate || known.keyColumns.isEmpty { return true }
        if let new = change.new, mayConcern(rows, new) { return true }
        if let old = change.old, mayConcern(rows, old) { return true }
        return false
    }

    func mayConcern(_ rows: Set<UInt64>, _ row: borrowing Tuple) -> Bool {
        rows.contains(key(row) ?? known.unkeyed)
    }

    /// Returns the same hash as `RecordedRelation.rowKey`.
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
