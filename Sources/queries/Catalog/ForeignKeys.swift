import Change
import Postgres

/// What PostgreSQL's catalog says of which table's rows refer to which other table's: asked of a server, or found in what
/// the log has of the catalog. Nobody judges by it; it is an order to fill tables in.
public struct ForeignKeys: Sendable {
    /// A table with a reference, and the one that it refers to.
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

    /// Partitions have constraints of their own, on either side.
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

    /// Nil of records by versions that did not ask.
    public init?(of record: CatalogRecord) {
        let question = CatalogRecord.question(Self.statement.sql, Self.statement.parameters, behind: nil)
        guard let answer = record.answers.first(where: { $0.question == question }), answer.failure == nil else {
            return nil
        }
        self.init(answer.rows)
    }
}
