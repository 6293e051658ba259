import Catalog
import Postgres

/// Generated column as PostgreSQL computes it: an SQL expression over the texts of other columns.
public struct GeneratedColumn: Sendable, Hashable {
    public struct Input: Sendable, Hashable {
        var name: String
        /// SQL type to which the text of the input column is cast.
        var type: String
        /// SQL collation; nil if it is the type's default.
        var collation: String?

        public init(name: String, type: String, collation: String? = nil) {
            self.name = name
            self.type = type
            self.collation = collation
        }
    }

    public var name: String
    /// Declared type of the column, in SQL. The expression's value is cast to it, as PostgreSQL does when it stores a
    /// row.
    public var type: String
    /// SQL expression of the column. All names in it are qualified with a schema, or belong to PostgreSQL itself.
    public var expression: String
    var inputs: [Input]

    public init(name: String, type: String, expression: String, inputs: [Input]) {
        self.name = name
        self.type = type
        self.expression = expression
        self.inputs = inputs
    }

    /// SQL that computes the column for many rows and returns each row's number with its value. Its parameters are
    /// arrays: the row numbers, then the texts of each input column.
    ///
    /// The expression can read its input columns and no others.
    var statement: String {
        let arrays = (0...inputs.count).map { index in
            let type = index == 0 ? "pg_catalog.int4[]" : "pg_catalog.text[]"
            return "pg_catalog.unnest(CAST($\(index + 1) AS \(type)))"
        }
        let names = (0...inputs.count).map { "\"tw$\($0)\"" }.joined(separator: ", ")
        let row = inputs.enumerated().map { index, input in
            let collation = input.collation.map { " COLLATE \($0)" } ?? ""
            let value = "CAST(\"tw$row\".\"tw$\(index + 1)\" AS \(input.type))\(collation)"
            return "\(value) AS \(Quoted.identifier(input.name))"
        }
        return """
            SELECT "tw$row"."tw$0", "tw$made"."tw$value"
            FROM ROWS FROM (\(arrays.joined(separator: ", "))) AS "tw$row" (\(names))
            CROSS JOIN LATERAL (
                SELECT CAST((\(expression)
                ) AS \(type)) AS "tw$value"
                FROM (SELECT \(row.joined(separator: ", "))) AS "tw$inputs") AS "tw$made"
            """
    }
}

/// Request to compute one generated column for a list of rows.
public struct GenerationQuestion: Sendable {
    var column: GeneratedColumn
    /// Rows for which the column is computed, each as the texts of the input columns; nil means NULL.
    var rows: [[String?]]

    public init(column: GeneratedColumn, rows: [[String?]]) {
        assert(rows.allSatisfy { $0.count == column.inputs.count }, "a row has a text for each input")
        self.column = column
        self.rows = rows
    }
}

/// Value of a generated column in one row.
public enum GeneratedValue: Sendable, Hashable {
    /// Text in the format of the replication stream.
    case text(String)
    case null
    /// PostgreSQL could not compute the value. The value is unknown, which differs from NULL.
    case failed
}

/// Request to compute generated columns for rows of one table.
public struct GenerationRequest: Sendable {
    /// Oid of the table, for log lines.
    var table: UInt32
    /// Roles that may run the expressions, which can call users' functions. The hub uses the first role that can
    /// compute any row.
    var roles: [String]
    var questions: [GenerationQuestion]

    public init(table: UInt32, roles: [String], questions: [GenerationQuestion]) {
        self.table = table
        self.roles = roles
        self.questions = questions
    }

    var rowCount: Int { questions.reduce(0) { $0 + $1.rows.count } }
    var byteCount: Int {
        questions.reduce(0) { $0 + $1.rows.reduce(0) { $0 + PolicyQuestion.bytes($1) } }
    }

    /// Answer in which every value is `failed`, for a request that PostgreSQL did not answer.
    var unanswered: [[GeneratedValue]] {
        questions.map { Array(repeating: .failed, count: $0.rows.count) }
    }
}
