import Change
import History
import Postgres

/// Reader of table definitions in a target database.
public struct TargetCatalog {
    private let connection: Connection

    public init(_ connection: Connection) { self.connection = connection }

    /// Returns the table's definition; nil if there is no such table.
    public func table(_ name: TableName) throws(PostgresError) -> TargetTable? {
        let rows = try connection.query(
            """
            SELECT a.attname, a.atttypid, a.atttypmod, a.attgenerated <> '', a.attidentity = 'a', NOT a.attnotnull
            FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
            ORDER BY a.attnum
            """, [name.schema, name.name])
        guard !rows.isEmpty else { return nil }
        let types = try types(of: name)
        let columns = rows.values.map { row in
            TargetTable.Column(
                row[0] ?? "", types.type(row[1] ?? "", modifier: row[2].flatMap { Int32($0) } ?? -1),
                isGenerated: row[3] == "t", isAlwaysIdentity: row[4] == "t", takesNull: row[5] == "t")
        }
        return TargetTable(name: name, columns: columns)
    }

    /// Returns the types of the table's columns. Includes the element types of arrays and the base types of domains.
    private func types(of table: TableName) throws(PostgresError) -> TypeRows {
        let rows = try connection.query(
            """
            WITH RECURSIVE used (id) AS (
                SELECT a.atttypid FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
                JOIN pg_namespace n ON n.oid = c.relnamespace
                WHERE n.nspname = $1 AND c.relname = $2 AND a.attnum > 0 AND NOT a.attisdropped
                UNION SELECT CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.typelem END
                FROM used JOIN pg_type t ON t.oid = used.id WHERE t.typtype = 'd' OR t.typcategory = 'A')
            SELECT t.oid, t.typname, CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE 0 END, t.typtypmod,
                CASE WHEN t.typcategory = 'A' THEN t.typelem ELSE 0 END, e.enumlabel
            FROM used JOIN pg_type t ON t.oid = used.id LEFT JOIN pg_enum e ON e.enumtypid = t.oid
            ORDER BY t.oid, e.enumsortorder
            """, [table.schema, table.name])
        return TypeRows(rows)
    }
}

/// Rows about the types of a table's columns, by each type's OID as text.
private struct TypeRows {
    private struct Row {
        var name: String
        /// OID of a domain's base type; nil if the type is not a domain.
        var base: String?
        /// Type modifier (length or precision) that a domain sets for its base type; -1 if none.
        var modifier: Int32
        var element: String?
        var labels: [String]
    }

    private var rows: [String: Row] = [:]
    /// Maximum number of domains and arrays within each other that the program follows.
    private static let deepest = 16

    init(_ answer: Rows) {
        for row in answer.values {
            guard let oid = row[0] else { continue }
            rows[
                oid,
                default: Row(
                    name: row[1] ?? "", base: Self.known(row[2]), modifier: row[3].flatMap { Int32($0) } ?? -1,
                    element: Self.known(row[4]), labels: [])
            ].labels += [row[5]].compactMap { $0 }
        }
    }

    /// Returns the OID, or nil for 0, by which PostgreSQL's catalog means "none".
    private static func known(_ oid: String?) -> String? { oid == "0" ? nil : oid }

    /// Returns the type with this OID. A domain becomes its base type with the domain's modifier.
    func type(_ oid: String, modifier: Int32, depth: Int = 0) -> TargetType {
        guard let row = rows[oid], let number = UInt32(oid), depth < Self.deepest else {
            return .named("", modifier: modifier)
        }
        if let base = row.base { return type(base, modifier: row.modifier, depth: depth + 1) }
        if let element = row.element { return .array(of: type(element, modifier: modifier, depth: depth + 1)) }
        if !row.labels.isEmpty { return .enumeration(row.labels) }
        return BuiltInType.name(of: number) == nil
            ? .named(row.name, modifier: modifier) : .builtIn(number, modifier: modifier)
    }
}
