import Postgres

/// A row of a table as PostgreSQL is asked about it: a value of the table's own row type with all that the image has.
///
/// Whatever a policy looks at, columns, the row as a whole, or the row in a function's argument, is then what the table
/// would show. A policy that looks at what such a value has not is not asked about: see `isNeeded`.
public struct JudgedRow: Sendable, Hashable {
    public struct Column: Sendable, Hashable {
        public var slot: Int
        public var name: String
        /// As SQL, to cast the row's text to, every name in full.
        public var type: String
        /// False only for what the policies provably do not look at. Nothing is asked about an image that lacks a needed one.
        public var isNeeded = true
    }

    /// The name by which the policies' text knows the table.
    public var relation: String
    /// The table's row type as SQL, in full.
    public var type: String
    /// All of the table's, in its order, without dropped ones.
    public var columns: [Column]

    init(relation: String, schema: String, columns: [Column]) {
        assert(
            columns.enumerated().allSatisfy { $0 == $1.slot }, "a row has all of its table's columns, in their order")
        self.relation = relation
        type = Quoted.identifier(schema) + "." + Quoted.identifier(relation)
        self.columns = columns
    }

    /// A FROM item: rows that go by the table's name, in the order of the array.
    public func source(_ array: String) -> String { "pg_catalog.unnest(\(array)) AS \(Quoted.identifier(relation))" }

    /// An array of rows from arrays of their columns' texts. A column that is not there and not needed is given as NULL:
    /// nobody looks.
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
