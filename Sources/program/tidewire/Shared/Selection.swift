import Change
import Console
import History
import Settings
import System

/// Options that select changes from the log.
extension Option {
    static let from = Option.value("from", "WHEN", "Where the window begins; see SELECTORS above.")
    static let to = Option.value("to", "WHEN", "Where the window ends; it does not include what begins exactly there.")
    static let table = Option.value(
        "table", "TABLE", short: "t", isRepeatable: true,
        "Only changes of this table: notes (which is public.notes), app.notes or \"Odd Schema\".\"t\".")
    static let operation = Option.value(
        "op", "LIST", isRepeatable: true,
        "Only these operations, separated by commas: I, U, D, T, M or insert, update, delete, truncate, message.")
    static let condition = Option.value(
        "where", "CONDITION", isRepeatable: true,
        "Only rows (for deletes: old rows) for which this holds: column=value, column!=value, \"column is null\", \"column is not null\". If given several times, all must hold. Values are compared as text; uuid and boolean values in any spelling."
    )
    static let limit = Option.value("limit", "N", short: "n", "Maximum number of changes.")

    static let window: [Option] = [.from, .to]
}

enum SelectorHelp {
    /// Help for the DESCRIPTION of every command with a window.
    static let text = """
        SELECTORS. --from and --to take a time (2026-11-14, 2026-11-14T10:02:11.5Z, with +02:00 or without a zone), an \
        age (-15m, -2h, -1d12h), now, oldest, an offset (@18442901), a place in the WAL (lsn:0/16B3748: the first \
        commit at or after it) or a transaction (xid:7421, the newest of that number). Times are commit times. The \
        window has everything that begins at or after --from and before --to.
        """
}

extension Arguments {
    /// Returns the query that the options describe. `NameCheck` compares its names with the log later.
    func query(_ zone: DisplayZone = .utc) throws(UsageError) -> HistoryQuery {
        let now = Clock.unixMicroseconds()
        var query = HistoryQuery(from: try bound(.from, now, zone), to: try bound(.to, now, zone))
        if case .time(let from)? = query.from, case .time(let to)? = query.to, from > to {
            throw UsageError("--from is after --to: the window is empty")
        }
        query.tables = try values(of: .table).mapped { (text) throws(UsageError) in
            guard let table = TableName(text) else {
                throw UsageError("--table \(text): expected table, schema.table or \"Quoted Schema\".\"table\"")
            }
            return table
        }
        query.operations = try operations()
        query.conditions = try values(of: .condition).mapped { (text) throws(UsageError) in
            guard let condition = RowCondition(text) else {
                throw UsageError("--where \(text): expected \(RowCondition.forms)")
            }
            return condition
        }
        return query
    }

    /// Returns the start or end of a window that the option gives (time, offset, LSN or transaction); nil if it is not
    /// given.
    func bound(_ option: Option, _ zone: DisplayZone) throws(UsageError) -> HistoryBound? {
        try bound(option, Clock.unixMicroseconds(), zone)
    }

    private func bound(_ option: Option, _ now: Int64, _ zone: DisplayZone) throws(UsageError) -> HistoryBound? {
        guard let text = value(of: option) else { return nil }
        guard let bound = HistoryBound(text, now: now, zone: zone.offset(atLocal:)) else {
            throw UsageError("--\(option.name) \(text): expected \(HistoryBound.forms)")
        }
        return bound
    }

    private func operations() throws(UsageError) -> Set<Operation> {
        let words = values(of: .operation).flatMap { $0.split(separator: ",", omittingEmptySubsequences: false) }
        return Set(
            try words.mapped { (word) throws(UsageError) in
                guard let operation = Operation(word: word) else {
                    throw UsageError(
                        "--op \(word): expected I, U, D, T, M or insert, update, delete, truncate, message")
                }
                return operation
            })
    }

    /// Returns the value of `--limit`; nil if the option is not given.
    func limit() throws(UsageError) -> Int? {
        guard case .integer(let number) = try value(of: .limit, as: .integer(0...1_000_000_000)) else { return nil }
        return Int(number)
    }
}

extension Array {
    /// Returns the transformed elements, like `map`, but with this module's typed error.
    fileprivate func mapped<T>(_ transform: (Element) throws(UsageError) -> T) throws(UsageError) -> [T] {
        var result: [T] = []
        for element in self { result.append(try transform(element)) }
        return result
    }
}

extension Operation {
    init?(word: some StringProtocol) {
        let word = String(word).filter { $0 != " " }.uppercased()
        guard let found = Operation.allCases.first(where: { $0.name == word || $0.letter == word }) else { return nil }
        self = found
    }

    var letter: String { String(UnicodeScalar(rawValue)) }
}

/// Check of the names in a query and in masks against the tables of the log. It rejects unknown tables and columns:
/// most are typing errors, and in `--mask` they would leave a value readable. It also rejects conditions on masked
/// columns.
struct NameCheck {
    private let relations: [RecordedRelation]
    private let masking: Masking

    init(_ log: HistoryLog) throws {
        relations = try log.relations()
        masking = log.masking
        try checkMasks()
    }

    func check(_ query: HistoryQuery) throws {
        for table in query.tables where !relations.contains(where: { $0.table == table }) { throw unknown(table) }
        let asked = relations.filter { query.tables.isEmpty || query.tables.contains($0.table) }
        for condition in query.conditions {
            guard asked.contains(where: { $0.has(condition.column) }) else {
                throw unknown("--where", condition.column, among: asked)
            }
            for relation in asked where relation.has(condition.column) && isMasked(condition.column, of: relation) {
                throw Self.masked("--where", condition.column, of: relation.table)
            }
        }
    }

    /// True if the column is masked under any name that its table had in the log.
    private func isMasked(_ column: String, of relation: RecordedRelation) -> Bool {
        masking.masks(column, of: relations.filter { $0.relation.oid == relation.relation.oid }.map(\.table))
    }

    /// Checks the names in `--mask` and `--unmask`. `--mask` needs a column in the log. `--unmask` also accepts a name
    /// inside JSON values.
    private func checkMasks() throws(UsageError) {
        for mask in masking.hidden where !isKnown(mask) { throw unknown("--mask", mask.column, among: relations) }
        for mask in masking.shown where !isKnown(mask) && !mask.isEverything {
            guard masking.rules.masks(mask.column, of: .claims) else {
                throw unknown("--unmask", mask.column, among: relations)
            }
        }
    }

    /// True if the name in the mask is a column of a table in the log.
    private func isKnown(_ mask: ColumnMask) -> Bool {
        relations.contains { known in
            known.relation.columns.contains { mask.covers($0.name, of: known.table) }
        }
    }

    /// Returns the error for a condition on a masked column. With such conditions, a user could find out its values by
    /// many queries.
    static func masked(_ option: String, _ column: String, of table: TableName) -> UsageError {
        let name = "\(table).\(SQLName.quoted(column))"
        return UsageError(
            "\(option): \(name) is masked, and conditions on it could reveal its values; "
                + "--unmask \(name) allows them, and the log's audit file records it")
    }

    /// Returns the error for a table without changes in the log, with a similar name if there is one.
    func unknown(_ table: TableName) -> CommandFailure {
        let tables = Set(relations.map(\.table.description)).sorted()
        let near = NearestName.to(table.description, among: tables).map { "did you mean \($0)? " } ?? ""
        let list =
            tables.isEmpty ? "The log has no tables yet." : "The log has " + tables.prefix(20).joined(separator: ", ")
        return CommandFailure(.notFound, "the log has no changes of \(table)", hint: near + list)
    }

    /// Returns the error for a column that none of these tables has, with a similar name if there is one.
    private func unknown(_ option: String, _ column: String, among relations: [RecordedRelation]) -> UsageError {
        let names = Set(relations.flatMap { $0.relation.columns.map(\.name) }).sorted()
        let near = NearestName.to(column, among: names).map { "; did you mean \($0)?" } ?? ""
        return UsageError("\(option): none of the selected tables has a column \(SQLName.quoted(column))\(near)")
    }
}

extension RecordedRelation {
    fileprivate func has(_ column: String) -> Bool { relation.column(named: column) != nil }
}
