import Catalog
import Postgres

/// A generated column in the form in which PostgreSQL computes it: an expression over the texts of other columns.
public struct GeneratedColumn: Sendable, Hashable {
    public struct Input: Sendable, Hashable {
        var name: String
        /// SQL type to which the text is cast.
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
    /// Declared type as SQL. The expression's value is cast to it, as when the row was stored.
    public var type: String
    /// SQL expression whose names are PostgreSQL's own or fully qualified.
    public var expression: String
    var inputs: [Input]

    public init(name: String, type: String, expression: String, inputs: [Input]) {
        self.name = name
        self.type = type
        self.expression = expression
        self.inputs = inputs
    }

    /// SQL that returns the number and the value of each row. Its parameters are arrays: the numbers, then the texts of
    /// each input.
    ///
    /// The expression can read only its inputs.
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

/// Question for the values of a generated column in these rows.
public struct GenerationQuestion: Sendable {
    var column: GeneratedColumn
    /// Texts of the column's inputs; nil means NULL.
    var rows: [[String?]]

    public init(column: GeneratedColumn, rows: [[String?]]) {
        assert(rows.allSatisfy { $0.count == column.inputs.count }, "a row has a text for each input")
        self.column = column
        self.rows = rows
    }
}

/// Value of a generated column in one row.
public enum GeneratedValue: Sendable, Hashable {
    /// Text as the replication stream would send it.
    case text(String)
    case null
    /// PostgreSQL could not compute the value. It is unknown, which is not NULL.
    case failed
}

/// Request for the generated columns of one table's rows.
public struct GenerationRequest: Sendable {
    /// Oid of the table, for log lines.
    var table: UInt32
    /// Roles that run the expressions, which may call users' functions. The first role that may call them is used.
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

    /// Answer in which every value is unknown.
    var unanswered: [[GeneratedValue]] {
        questions.map { Array(repeating: .failed, count: $0.rows.count) }
    }
}
