import Postgres

/// Form in which PostgreSQL receives a changed row to evaluate policies on it: a value of the table's own row type.
///
/// A policy thus sees the same columns, whole row or function argument as in the table. If the change lacks a column
/// that a policy reads, PostgreSQL is not asked: see `isNeeded`.
public struct JudgedRow: Sendable, Hashable {
    public struct Column: Sendable, Hashable {
        public var slot: Int
        public var name: String
        /// SQL type to which the column's text is cast, qualified with its schema.
        public var type: String
        /// True if a policy may read the column. False only if it is certain that no policy reads it. A row that lacks
        /// a needed column is not evaluated.
        public var isNeeded = true
    }

    /// Name of the table in the text of its policies.
    public var relation: String
    /// SQL name of the table's row type, qualified with its schema.
    public var type: String
    /// All columns of the table in order, without dropped columns.
    public var columns: [Column]

    init(relation: String, schema: String, columns: [Column]) {
        assert(
            columns.enumerated().allSatisfy { $0 == $1.slot }, "a row has all of its table's columns, in their order")
        self.relation = relation
        type = Quoted.identifier(schema) + "." + Quoted.identifier(relation)
        self.columns = columns
    }

    /// True if the table still has this row type.
    func isOf(_ table: CatalogTable) -> Bool {
        type == Quoted.identifier(table.schema) + "." + Quoted.identifier(table.name)
            && columns.count == table.columns.count
            && zip(columns, table.columns).allSatisfy { $0.name == $1.name && $0.type == $1.declaredType }
    }

    /// Returns a FROM item that lists the rows of the SQL array, in order, under the table's name.
    public func source(_ array: String) -> String { "pg_catalog.unnest(\(array)) AS \(Quoted.identifier(relation))" }

    /// Returns SQL for an array of rows. It builds them from arrays with the texts of each column, which `input` names.
    /// A missing column that no policy needs is NULL.
    public func array(_ input: (Int) -> String) -> String {
        if columns.isEmpty { return "ARRAY[CAST(ROW() AS \(type))]" }
        let values = columns.enumerated().map { "CAST(\"tw$row\".\"c\($0)\" AS \($1.type))" }.joined(separator: ", ")
        let arrays = columns.indices.map { "pg_catalog.unnest(\(input($0)))" }.joined(separator: ", ")
        let names = columns.indices.map { "\"c\($0)\", " }.joined()
        return """
            ARRAY(SELECT CAST(ROW(\(values)) AS \(type))
            FROM ROWS FROM (\(arrays)) WITH ORDINALITY AS "tw$row" (\(names)"number") ORDER BY "tw$row"."number")
            """
    }
}
