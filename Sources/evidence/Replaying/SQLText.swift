import Change
import History

/// Writer of values and names in SQL.
public enum SQLText {
    /// Returns a literal from which PostgreSQL makes the value by the column's type. The literal is correct for any
    /// setting of standard_conforming_strings.
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
        // Always quoted, because a plain name may be a keyword.
        "\"" + name.split(separator: "\"", omittingEmptySubsequences: false).joined(separator: "\"\"") + "\""
    }

    public static func name(_ table: TableName) -> String { name(table.schema) + "." + name(table.name) }
}

/// Statements that write rows of a table of the log into a target table. The use of each column is decided once.
public struct RowStatements: Sendable {
    public let source: Relation
    public let target: TargetTable
    private let table: String
    /// Target columns, in the order of the log's columns; nil if the target has no column of that name.
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

    /// Returns the reasons, in words, why rows of this table cannot be written to the target.
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

    /// Returns the literal of a value; nil for an unknown value.
    private func literal(_ value: RowValue, _ column: TargetTable.Column) -> String? {
        switch value {
        case .unchanged, .binary: nil
        case .null: "NULL"
        case .masked(let tag): StandIn.text(of: tag, for: column.type).map(SQLText.literal) ?? "NULL"
        case .text(let bytes): SQLText.literal(fitting(String(decoding: bytes, as: UTF8.self), column))
        }
    }

    /// Returns the text cut to the column's length. Marks may have made JSON in the text longer.
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

    /// Returns the columns that get values, and the values.
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

    /// Returns the part of the statement before the rows.
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
        // No column can be set. The statement still checks that the row exists.
        if settings.isEmpty { return "SELECT FROM \(table) WHERE \(place)" }
        return "UPDATE \(table) SET \(settings.joined(separator: ", ")) WHERE \(place)"
    }

    public func delete(_ change: RecordedChange) -> String? {
        place(of: change).map { "DELETE FROM \(table) WHERE \($0)" }
    }

    /// Returns the condition that finds the row: by its key before the change or, without a key, by all known values.
    /// Nil if nothing is known.
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

    /// Returns a condition that finds one of the equal rows. A table without a key may have a row more than once.
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
        // A stand-in may be spelled in another way than PostgreSQL does, so it is compared by its value. A value of the
        // log has PostgreSQL's spelling and is compared by its text: some types cannot be compared, and some values
        // equal different ones. A cast to text would change the spelling of some types (boolean, inet); format keeps
        // the spelling that is sent.
        if case .masked = value, type.hasEquality { return "\(name) = \(literal)" }
        let condition = "format('%s', \(name)) = \(literal)"
        return literal == "''" ? "\(condition) AND num_nulls(\(name)) = 0" : condition
    }
}

extension RowStatements {
    /// Returns one statement for tables that were truncated together.
    public static func truncate(_ tables: [TableName], cascades: Bool, restartsIdentity: Bool) -> String {
        "TRUNCATE " + tables.map(SQLText.name).joined(separator: ", ")
            + (restartsIdentity ? " RESTART IDENTITY" : "") + (cascades ? " CASCADE" : "")
    }
}
