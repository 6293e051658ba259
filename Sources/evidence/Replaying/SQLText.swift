import Change
import History

/// Writer of values and names as SQL text.
public enum SQLText {
    /// Returns a string literal that PostgreSQL converts to the column's type. It is correct for any setting of
    /// standard_conforming_strings.
    public static func literal(_ text: String) -> String {
        if text.utf8.allSatisfy({ $0 != UInt8(ascii: "'") && $0 != UInt8(ascii: "\\") }) { return "'" + text + "'" }
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

/// Builder of SQL statements that write rows of one table of the log to a table of the target database. The initializer
/// finds the target's columns once.
public struct RowStatements: Sendable {
    public let source: Relation
    public let target: TargetTable
    private let table: String
    /// Column of the target for each column of the log's table, by index; nil if the target table has no column of that
    /// name.
    private let columns: [TargetTable.Column?]
    private let names: [String]
    /// Indexes of the key columns in the log's table; empty if it has no key.
    private let key: [Int]

    public init(of source: Relation, into target: TargetTable) {
        self.source = source
        self.target = target
        table = SQLText.name(target.name)
        columns = source.columns.map { target.column(named: $0.name) }
        names = source.columns.map { SQLText.name($0.name) }
        key = source.keyColumns
    }

    /// Returns the reasons, as texts, why rows of this table cannot be written to the target; empty if they can.
    ///
    /// - Parameter isMasked: returns true if the column at this index is masked in the log.
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

    /// Returns a value of the log as an SQL literal for a column of the target; nil if the log does not have the value.
    private func literal(_ value: RowValue, _ column: TargetTable.Column) -> String? {
        switch value {
        case .unchanged, .binary: nil
        case .null: "NULL"
        case .masked(let tag): StandIn.text(of: tag, for: column.type).map(SQLText.literal) ?? "NULL"
        case .text(let bytes): SQLText.literal(fitting(String(decoding: bytes, as: UTF8.self), column))
        }
    }

    /// Returns the text of a value, cut to the length that the target's column allows. Masking may have made a JSON
    /// text longer than that.
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

    /// Returns the names of the target's columns that an INSERT statement can set for this row, and the values as SQL
    /// literals.
    public func insertable(_ row: [RowValue]) -> (names: [String], values: [String]) {
        var (given, values): ([Int], [String]) = ([], [])
        insertable(row, &given, &values)
        return (given.map { names[$0] }, values)
    }

    /// Appends the indexes of the target columns that an INSERT can set for this row, and their values as SQL literals.
    func insertable(_ row: [RowValue], _ given: inout [Int], _ values: inout [String]) {
        for index in row.indices {
            guard let column = columns[index], !column.isGenerated, let value = literal(row[index], column) else {
                continue
            }
            given.append(index)
            values.append(value)
        }
    }

    /// Returns the beginning of an INSERT statement, before its rows, for the columns with these indexes.
    func heading(of given: [Int]) -> String { heading(given.map { names[$0] }) }

    /// Returns the beginning of an INSERT statement, before its rows, for the columns with these names.
    public func heading(_ names: [String]) -> String {
        "INSERT INTO \(table) (\(names.joined(separator: ", "))) OVERRIDING SYSTEM VALUE VALUES "
    }

    /// Returns an UPDATE statement for a change; nil if the log does not show which row it changed.
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

    /// Returns a DELETE statement for a change; nil if the log does not show which row it deleted.
    public func delete(_ change: RecordedChange) -> String? {
        place(of: change).map { "DELETE FROM \(table) WHERE \($0)" }
    }

    /// Returns an SQL condition that finds the changed row in the target by its key before the change. If the table has
    /// no key, it compares all values that the log has. Nil if the log has none.
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

    /// Returns an SQL condition that compares all values that the log has of the row. A table without a key may have
    /// several equal rows; the condition finds exactly one of them.
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

    /// Returns an SQL condition that is true if the column has the value. `literal` is the value as an SQL literal.
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
    /// Returns one TRUNCATE statement for several tables, which were truncated together in the source.
    public static func truncate(_ tables: [TableName], cascades: Bool, restartsIdentity: Bool) -> String {
        "TRUNCATE " + tables.map(SQLText.name).joined(separator: ", ")
            + (restartsIdentity ? " RESTART IDENTITY" : "") + (cascades ? " CASCADE" : "")
    }
}
