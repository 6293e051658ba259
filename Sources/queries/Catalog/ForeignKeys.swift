import Change
import Postgres

/// Foreign keys between tables, read from a server or from a catalog record in the log. They only determine the order
/// in which tables are filled; no policy depends on them.
public struct ForeignKeys: Sendable {
    /// Foreign key, as the table that has it and the table to which it refers.
    public struct Reference: Sendable, Hashable {
        public var schema: String
        public var table: String
        public var referencedSchema: String
        public var referencedTable: String

        public init(schema: String, table: String, referencedSchema: String, referencedTable: String) {
            self.schema = schema
            self.table = table
            self.referencedSchema = referencedSchema
            self.referencedTable = referencedTable
        }
    }

    public let references: [Reference]

    /// Query for foreign keys. The partitions on both sides of a key have constraints of their own.
    static let statement = PipelinedStatement(
        """
        SELECT DISTINCT n.nspname COLLATE "C", c.relname COLLATE "C", m.nspname COLLATE "C", r.relname COLLATE "C"
        FROM pg_constraint k
            JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
            JOIN pg_class r ON r.oid = k.confrelid JOIN pg_namespace m ON m.oid = r.relnamespace
        WHERE k.contype = 'f' AND k.conrelid <> k.confrelid
        ORDER BY 1, 2, 3, 4
        """)

    private init(_ rows: [[String?]]) {
        references = rows.compactMap { row in
            guard row.count == 4, let schema = row[0], let table = row[1], let referencedSchema = row[2],
                let referencedTable = row[3]
            else { return nil }
            return Reference(
                schema: schema, table: table, referencedSchema: referencedSchema, referencedTable: referencedTable)
        }
    }

    public static func ask(_ connection: Connection) throws(PostgresError) -> ForeignKeys {
        ForeignKeys(try connection.query(statement.sql).values)
    }

    /// Reads the foreign keys from a record. Nil if a version of the hub wrote the record that did not record foreign
    /// keys.
    public init?(of record: CatalogRecord) {
        let question = CatalogRecord.question(Self.statement.sql, Self.statement.parameters, behind: nil)
        guard let answer = record.answers.first(where: { $0.question == question }), answer.failure == nil else {
            return nil
        }
        self.init(answer.rows)
    }
}
