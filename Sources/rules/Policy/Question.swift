/// Filter as a question for PostgreSQL: an SQL expression of type boolean over texts.
///
/// Parameters `$1` to `$k` are the row's texts for `slots`, in that order; NULL for a NULL column. The filter's
/// constants follow. The expression names types and collations but no tables. It must be run with `search_path` set to
/// `pg_catalog`.
public struct Question: Sendable, Hashable {
    public var sql: String
    public var slots: [Int]
    public var constants: [String]

    public init(sql: String, slots: [Int], constants: [String]) {
        self.sql = sql
        self.slots = slots
        self.constants = constants
    }
}

extension FilterCheck {
    /// Returns the filter as an SQL condition on the table. The filter's values are the parameters `$1` and so on, as
    /// texts in any form. `column` returns the SQL of a column. The filter may not read the row before a change
    /// (`oldSlots`).
    public func condition(on column: (Int) -> String) -> (sql: String, constants: [String]) {
        QuestionWriter.condition(self, columns: columns.indices.map(column))
    }
}

/// Writer that turns a checked filter into SQL, close to the client's own text.
struct QuestionWriter {
    private let check: FilterCheck
    private let canonical: [String]
    private let slots: [Int]
    /// SQL of each column, for a condition on a table. Nil if the columns are parameters that precede the values.
    private var columns: [String]?
    private var constants: [String] = []

    static func question(_ check: FilterCheck, _ canonical: [String]) -> Question {
        let slots = check.root.slots.sorted()
        var writer = QuestionWriter(check: check, canonical: canonical, slots: slots)
        let sql = writer.expression(check.root)
        precondition(!slots.isEmpty && !sql.isEmpty, "a question about nothing")
        precondition(slots.allSatisfy { !check.settings.hiddenSlots.contains($0) }, "a question about a hidden column")
        return Question(sql: sql, slots: slots, constants: writer.constants)
    }

    static func condition(_ check: FilterCheck, columns: [String]) -> (sql: String, constants: [String]) {
        var writer = QuestionWriter(check: check, canonical: check.literals.map(\.text), slots: [])
        writer.columns = columns
        let sql = writer.expression(check.root)
        precondition(!sql.isEmpty, "a condition on nothing")
        return (sql, writer.constants)
    }

    private init(check: FilterCheck, canonical: [String], slots: [Int]) {
        self.check = check
        self.canonical = canonical
        self.slots = slots
    }

    private mutating func expression(_ node: CheckedNode) -> String {
        switch node {
        case .test(let test):
            precondition(!test.isOld, "PostgreSQL is not asked about rows before a change")
            return condition(test)
        case .changed: preconditionFailure("PostgreSQL is not asked what a change has changed")
        case .all(let parts): return joined(parts, " AND ")
        case .any(let parts): return joined(parts, " OR ")
        case .not(let part): return "(NOT " + expression(part) + ")"
        }
    }

    private mutating func joined(_ parts: [CheckedNode], _ word: String) -> String {
        precondition(!parts.isEmpty, "a group of nothing is no SQL")
        var texts: [String] = []
        for part in parts { texts.append(expression(part)) }
        return "(" + texts.joined(separator: word) + ")"
    }

    private mutating func condition(_ test: CheckedTest) -> String {
        let sql = comparison(test)
        return test.isNegated ? "(NOT (\(sql)))" : "(\(sql))"
    }

    private mutating func comparison(_ test: CheckedTest) -> String {
        let column = column(test.slot)
        let type = check.columns[test.slot].type
        switch test.value {
        case .word(let word): return "\(column) IS \(word.sql)"
        case .ready(let elements) where test.comparison == .in: return isIn(column, ArrayLiteral.text(elements), type)
        case .literal(let index) where test.comparison == .in: return isIn(column, canonical[index], type)
        case .ready(let elements):
            guard let value = elements.first ?? nil else { preconditionFailure("a condition without a value") }
            return holding(column, test.comparison, String(decoding: value, as: UTF8.self), type)
        case .literal(let index): return holding(column, test.comparison, canonical[index], type)
        case .relative(let offset):
            precondition(columns != nil, "PostgreSQL is not asked about the time of a commit that it does not know")
            return holding(column, test.comparison, fromNow: offset, type)
        }
    }

    private mutating func isIn(_ column: String, _ list: String, _ type: TypeFacts) -> String {
        "\(column) = ANY (CAST(\(parameter(list)) AS \(SQLType.array(of: type))))"
    }

    private mutating func holding(
        _ column: String, _ comparison: FilterOperator, _ value: String, _ type: TypeFacts
    ) -> String {
        assert(comparison != .in && comparison != .is, "a list or a word, and no value")
        let operand = SQLType.operand(of: comparison, on: type)
        return "\(column) \(SQLType.symbol(comparison)) CAST(\(parameter(value)) AS \(operand))"
    }

    /// Returns the comparison of a column with a time relative to the query.
    private mutating func holding(
        _ column: String, _ comparison: FilterOperator, fromNow microseconds: Int64, _ type: TypeFacts
    ) -> String {
        let span = "CAST(\(parameter("\(microseconds) microseconds")) AS pg_catalog.interval)"
        let symbol = SQLType.symbol(comparison)
        if type.oid == TypeOID.timestamptz { return "\(column) \(symbol) pg_catalog.now() + \(span)" }
        // A timestamp without a time zone is taken as UTC, and a date as its beginning in UTC.
        let moment = "pg_catalog.timezone('UTC', pg_catalog.now() + \(span))"
        return "CAST(\(column) AS pg_catalog.timestamp) \(symbol) \(moment)"
    }

    private mutating func parameter(_ text: String) -> String {
        constants.append(text)
        return "$\(slots.count + constants.count)"
    }

    private func column(_ slot: Int) -> String {
        if let columns { return cast(columns[slot], slot) }
        guard let place = slots.firstIndex(of: slot) else { preconditionFailure("a column that is not asked for") }
        return cast("$\(place + 1)", slot)
    }

    private func cast(_ value: String, _ slot: Int) -> String {
        let facts = check.columns[slot]
        return "CAST(\(value) AS \(SQLType.name(facts.type)))" + SQLType.collate(facts.collation)
    }
}

/// SQL syntax of types and operators.
public enum SQLType {
    /// Returns the type's name for a cast. PostgreSQL's `format_type` writes `character` and `bit`, which a cast would
    /// limit to length one.
    public static func name(_ type: TypeFacts) -> String {
        if case .array(let element) = type.shape { return name(element) + "[]" }
        switch type.oid {
        case TypeOID.bpchar: return "pg_catalog.bpchar"
        case TypeOID.bit: return "pg_catalog.\"bit\""
        default: return type.name
        }
    }

    /// Returns the array type whose elements have this type. An array type is its own, because PostgreSQL has no arrays
    /// of arrays, only arrays with more dimensions.
    static func array(of type: TypeFacts) -> String {
        if case .array = type.shape { return name(type) }
        return name(type) + "[]"
    }

    /// Returns the type of the operator's right side. Patterns are text, except for bytea columns.
    static func operand(of comparison: FilterOperator, on type: TypeFacts) -> String {
        switch comparison {
        case .like, .ilike, .match, .imatch: type.oid == TypeOID.bytea ? "bytea" : "text"
        default: name(type)
        }
    }

    static func collate(_ collation: Collation) -> String {
        switch collation {
        case .none, .deterministic(nil), .nondeterministic(nil): ""
        case .bytewise: " COLLATE \"C\""
        case .deterministic(let name?), .nondeterministic(let name?): " COLLATE " + name
        }
    }

    static func symbol(_ comparison: FilterOperator) -> String {
        switch comparison {
        case .eq, .in: "="
        case .neq: "<>"
        case .lt: "<"
        case .lte: "<="
        case .gt: ">"
        case .gte: ">="
        case .like: "~~"
        case .ilike: "~~*"
        case .match: "~"
        case .imatch: "~*"
        case .is: "IS"
        case .isdistinct: "IS DISTINCT FROM"
        case .cs: "@>"
        case .cd: "<@"
        case .ov: "&&"
        case .sl: "<<"
        case .sr: ">>"
        case .nxr: "&<"
        case .nxl: "&>"
        case .adj: "-|-"
        }
    }
}
