/// Predicate as SQL for PostgreSQL to decide: one boolean expression over texts.
///
/// `$1` to `$k` are the row's texts of `slots` in that order (NULL for a NULL column). The constants follow. The
/// expression names only types and collations, no table, and must be asked with `search_path` set to `pg_catalog`.
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
    /// Returns the filter as a condition on the table itself, to stand in a statement. The filter's values are `$1` and
    /// so on, as texts that need not be canonical. `column` returns a column as SQL.
    public func condition(on column: (Int) -> String) -> (sql: String, constants: [String]) {
        QuestionWriter.condition(self, columns: columns.indices.map(column))
    }
}

/// Writer of a checked filter as SQL, in the client's own form.
struct QuestionWriter {
    private let check: FilterCheck
    private let canonical: [String]
    private let slots: [Int]
    /// Columns as SQL, for a condition on a table. Otherwise the columns are parameters before the values.
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
        case .test(let test): return condition(test)
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

/// Types and operators as SQL writes them.
public enum SQLType {
    /// Returns the type's name for a cast. `format_type` says `character` and `bit`, which in a cast mean a length of
    /// one.
    public static func name(_ type: TypeFacts) -> String {
        if case .array(let element) = type.shape { return name(element) + "[]" }
        switch type.oid {
        case TypeOID.bpchar: return "pg_catalog.bpchar"
        case TypeOID.bit: return "pg_catalog.\"bit\""
        default: return type.name
        }
    }

    /// Returns the type of arrays of this type. PostgreSQL has no arrays of arrays: more dimensions have the same type.
    static func array(of type: TypeFacts) -> String {
        if case .array = type.shape { return name(type) }
        return name(type) + "[]"
    }

    /// Returns the type of the operator's right side. A pattern is text for every column type except bytea.
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
