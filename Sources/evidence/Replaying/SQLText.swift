import Change
import History

/// Writer of values and names as SQL text.
public enum SQLText {
    /// Returns a string literal that PostgreSQL converts to the column's type. It is correct for any setting of
    /// standard_conforming_strings.
    public static func literal(_ text: String) -> String {
        var literal = "'"
        var hasBackslash = false
        for scalar in text.unicodeScalars {
            if scalar == "'" { literal += "'" }
            if scalar == "\\" {
                literal += "\\"
                hasBackslash = true
            }
            literal.unicodeScalars.append(scalar)
        }
        return (hasBackslash ? "E" : "") + literal + "'"
    }

    public static func name(_ name: String) -> String {
        // Names are always quoted, because an unquoted name may be a keyword.
        "\"" + name.split(separator: "\"", omittingEmptySubsequences: false).joined(separator: "\"\"") + "\""
    }

    public static func name(_ table: TableName) -> String { name(table.schema) + "." + name(table.name) }
}

/// Statements that write rows of one table of the log to a table of the target. How each column is used is decided
/// once.
public struct RowStatements: Sendable {
    public let source: Relation
    public let target: TargetTable
    private let table: String
    /// Columns of the target, in the order of the log's columns; nil for a column whose name the target table does not
    /// have.
    private let columns: [TargetTable.Column?]
    private let names: [String]
    private let key: [Int]

    public init(of source: Relation, into target: TargetTable) {
        self.source = source
        self.target = target
        table = SQLText.name(target.name)
        columns = source.columns.map { target.column(named: $0.name) }
        names = source.columns.map { SQLText.name($0.name) }
        key = source.keyColumns
    }

    /// Returns texts with the reasons why rows of this table cannot be written to the target; empty if they can.
    public func obstacles(hiding isMasked: (Int) -> Bool) -> [String] {
        source.columns.indices.compactMap { index in
            let name = SQLName.quoted(source.columns[index].name)
            guard let column = columns[index] else { return "\(target.name) has no column \(name)" }
            guard !column.isGenerated, !column.takesNull, isMasked(index) else { return nil }
            guard StandIn.text(of: 0, for: column.type) == nil else { return nil }
            return
                "\(target.name).\(name) takes no NULL, and its type has no stand-in for masked values"
        }
    }

    // MARK: Values

    /// Returns a value as an SQL literal; nil if the value is unknown.
    private func literal(_ value: RowValue, _ column: TargetTable.Column) -> String? {
        switch value {
        case .unchanged, .binary: nil
        case .null: "NULL"
        case .masked(let tag): StandIn.text(of: tag, for: column.type).map(SQLText.literal) ?? "NULL"
        case .text(let bytes): SQLText.literal(fitting(String(decoding: bytes, as: UTF8.self), column))
        }
    }

    /// Returns the text, cut to the column's length. Masking may have made a JSON text longer than the column allows.
    private func fitting(_ text: String, _ column: TargetTable.Column) -> String {
        guard let most = column.type.characters, text.utf8.count > most, text.unicodeScalars.count > most else {
            return text
        }
        return String(String.UnicodeScalarView(text.unicodeScalars.prefix(most)))
    }

    // MARK: Statements

    public func insert(_ row: [RowValue]) -> String {
        let (names, values) = insertable(row)
        if names.isEmpty { return "INSERT INTO \(table) DEFAULT VALUES" }
        return heading(names) + "(" + values.joined(separator: ", ") + ")"
    }

    /// Returns the names of the columns that can be set, and their values as literals.
    public func insertable(_ row: [RowValue]) -> (names: [String], values: [String]) {
        var (given, values): ([String], [String]) = ([], [])
        for index in row.indices {
            guard let column = columns[index], !column.isGenerated, let value = literal(row[index], column) else {
                continue
            }
            given.append(names[index])
            values.append(value)
        }
        return (given, values)
    }

    /// Returns the beginning of an INSERT statement, up to the rows.
    public func heading(_ names: [String]) -> String {
        "INSERT INTO \(table) (\(names.joined(separator: ", "))) OVERRIDING SYSTEM VALUE VALUES "
    }

    public func update(_ change: RecordedChange) -> String? {
        guard let place = place(of: change) else { return nil }
        var settings: [String] = []
        for index in change.new.indices {
            guard let column = columns[index], !column.isGenerated, !column.isAlwaysIdentity,
                let value = literal(change.new[index], column)
            else { continue }
            settings.append("\(names[index]) = \(value)")
        }
        // There is no column to set. The statement only checks that the row exists.
        if settings.isEmpty { return "SELECT FROM \(table) WHERE \(place)" }
        return "UPDATE \(table) SET \(settings.joined(separator: ", ")) WHERE \(place)"
    }

    public func delete(_ change: RecordedChange) -> String? {
        place(of: change).map { "DELETE FROM \(table) WHERE \($0)" }
    }

    /// Returns a condition that finds the row by its key before the change. Without a key it compares all known values.
    /// Nil if no value is known.
    private func place(of change: RecordedChange) -> String? {
        if key.isEmpty { return wholeRow(change) }
        let values = change.oldKey ?? change.key.map(\.value)
        guard values.count == key.count else { return nil }
        var conditions: [String] = []
        for (index, value) in zip(key, values) {
            guard let column = columns[index], let literal = literal(value, column), value != .null else { return nil }
            conditions.append("\(names[index]) = \(literal)")
        }
        return conditions.joined(separator: " AND ")
    }

    /// Returns a condition that finds exactly one of several equal rows, which a table without a key may have.
    private func wholeRow(_ change: RecordedChange) -> String? {
        var conditions: [String] = []
        for index in change.old.indices {
            guard let column = columns[index], !column.isGenerated, let known = change.oldValue(of: index),
                let literal = literal(known, column)
            else { continue }
            conditions.append(condition(names[index], known, literal, column.type))
        }
        guard !conditions.isEmpty else { return nil }
        let found = "SELECT tableoid, ctid FROM \(table) WHERE \(conditions.joined(separator: " AND ")) LIMIT 1"
        return "(tableoid, ctid) = (\(found))"
    }

    private func condition(_ name: String, _ value: RowValue, _ literal: String, _ type: TargetType) -> String {
        if literal == "NULL" { return name + " IS NULL" }
        // A stand-in for a masked value may be written differently than PostgreSQL writes it, so values are compared. A
        // value of the log is written as PostgreSQL writes it, so texts are compared: some types have no comparison,
        // and some equal values differ in their text. A cast to text changes the text of some types (boolean, inet).
        // `format` keeps the text that PostgreSQL sends to clients.
        if case .masked = value, type.hasEquality { return "\(name) = \(literal)" }
        let condition = "format('%s', \(name)) = \(literal)"
        return literal == "''" ? "\(condition) AND num_nulls(\(name)) = 0" : condition
    }
}

extension RowStatements {
    /// Returns one TRUNCATE statement for tables that were truncated together.
    public static func truncate(_ tables: [TableName], cascades: Bool, restartsIdentity: Bool) -> String {
        "TRUNCATE " + tables.map(SQLText.name).joined(separator: ", ")
            + (restartsIdentity ? " RESTART IDENTITY" : "") + (cascades ? " CASCADE" : "")
    }
}
