import Catalog
import Postgres

/// A generated column as PostgreSQL is asked to compute it: an expression over the texts of other columns of its row.
public struct GeneratedColumn: Sendable, Hashable {
    public struct Input: Sendable, Hashable {
        var name: String
        /// As SQL, to cast the text to.
        var type: String
        /// As SQL, where it is not the type's own.
        var collation: String?

        public init(name: String, type: String, collation: String? = nil) {
            self.name = name
            self.type = type
            self.collation = collation
        }
    }

    public var name: String
    /// The declared type as SQL: the expression is brought to it as when the row was stored.
    public var type: String
    /// Its names are PostgreSQL's own, or written in full.
    public var expression: String
    var inputs: [Input]

    public init(name: String, type: String, expression: String, inputs: [Input]) {
        self.name = name
        self.type = type
        self.expression = expression
        self.inputs = inputs
    }

    /// For each row its number and the value, of parameters that are arrays: the numbers, then the texts of each input.
    ///
    /// Only what the expression reads is there to be read.
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

/// Which value has a table's generated column in these rows?
public struct GenerationQuestion: Sendable {
    var column: GeneratedColumn
    /// The texts of the column's inputs, nil is NULL.
    var rows: [[String?]]

    public init(column: GeneratedColumn, rows: [[String?]]) {
        assert(rows.allSatisfy { $0.count == column.inputs.count }, "a row has a text for each input")
        self.column = column
        self.rows = rows
    }
}

/// A generated column's value of one row.
public enum GeneratedValue: Sendable, Hashable {
    /// As the replication stream would have it.
    case text(String)
    case null
    /// PostgreSQL could not compute it: it is not known, which is not NULL.
    case failed
}

/// What somebody wants to know of one table's rows.
public struct GenerationRequest: Sendable {
    /// For log lines.
    var table: UInt32
    /// As whom the expressions run, which may call what users wrote: the first of them that may.
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

    /// Nothing is known.
    var unanswered: [[GeneratedValue]] {
        questions.map { Array(repeating: .failed, count: $0.rows.count) }
    }
}
