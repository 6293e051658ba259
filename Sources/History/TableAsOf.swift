import Bytes
import Change

/// A row as the log has it at a place.
public struct RowAsOf: Sendable {
    /// The change that made it what it is.
    public let offset: UInt64
    public let key: String
    /// By the columns of its table as they were then; nil where the log does not tell a value.
    public let values: [(name: String, json: String?)]
    /// As PostgreSQL writes them; nil is NULL or not known.
    public let texts: [String?]
    /// As they were sent, and the schema that the row had.
    public let row: [RowValue]
    public let relation: RecordedRelation
}

/// Why the rows of a table cannot be told.
public enum TableAsOfError: Error, Sendable, Equatable {
    case unknownTable(TableName)
    /// Its rows cannot be told apart.
    case noKey(TableName)
    case tooManyRows(most: Int)
}

/// A table's name and a place in the log in; the rows that it had there out, as far as the log tells: those that a change
/// made, or touched, since the oldest that is kept.
///
/// A table that was renamed is one table; of several that had the name, that one is shown which had it last. What a restored
/// database has is another table's. All rows are held in memory, up to a number.
public struct TableAsOf: ~Copyable {
    fileprivate struct Row {
        var offset: UInt64
        var relation: RecordedRelation
        var values: [RowValue]
    }

    /// One table of those that were once called so.
    fileprivate struct Table {
        var rows: [[RowValue]: Row] = [:]
        /// Of rows whose last change was forgotten, by what is left of their keys.
        var forgotten: Set<ForgottenMark> = []
        /// It was emptied within the log, which so has all of its rows.
        var isWhole = false
        var name: TableName
    }

    private var tables: [TableFamilies.Identity: Table] = [:]
    /// Of which the last change was that has the name, or else the last of all.
    private var shown: TableFamilies.Identity?
    public private(set) var gaps: [RecordedGap] = []
    private var masks: [UInt64: MaskedRelation] = [:]
    private let masking: Masking

    /// - Parameter noting: told of each entry's offset; what it throws ends the reading.
    public init(
        _ log: HistoryLog, _ table: TableName, _ query: HistoryQuery, atMost most: Int,
        noting: ((UInt64) throws -> Void)? = nil
    ) throws {
        masking = log.masking
        let window = try log.window(from: nil, to: query.to)
        let families = try TableFamilies(log)
        let wanted = families.tables(called: table)
        let relations = families.schemas.filter { wanted.contains($0.identity) }.map(\.relation)
        guard let newest = relations.last else { throw TableAsOfError.unknownTable(table) }
        guard !newest.keyColumns.isEmpty else { throw TableAsOfError.noKey(table) }
        var query = query
        query.tables = [table]
        query.alsoWanted = Set(relations.map(\.fingerprint))
        var reader = try HistoryReader(
            log, query, window: window, matching: Array(Set(relations.map(\.tableKey))))
        reader.noting = noting
        while let item = try reader.nextUnmasked() {
            switch item {
            case .gap(let gap): gaps.append(gap)
            case .presence, .mark: continue
            case .change(let change):
                guard let relation = change.relation else { continue }
                let identity = families.identity(of: relation, in: change.epoch)
                guard wanted.contains(identity) else { continue }
                masks[relation.fingerprint] = reader.masks(of: relation)
                if relation.table == table || tables[shown ?? identity]?.name != table { shown = identity }
                tables[identity, default: Table(name: relation.table)].name = relation.table
                tables[identity]?.take(change, relation)
                guard tables[identity]?.rows.count ?? 0 <= most else { throw TableAsOfError.tooManyRows(most: most) }
            }
        }
    }

    private var table: Table? { shown.flatMap { tables[$0] } }

    /// In the order in which they became what they are.
    public func visit(_ body: (RowAsOf) throws -> Void) throws {
        let rows = table?.rows.values.sorted { $0.offset < $1.offset }
        for row in rows ?? [] { try body(described(row)) }
    }

    /// What it was called last; nil where nothing is known of it then.
    public var name: TableName? { table?.name }
    /// Rows that were there and are not shown: their values were removed from the log.
    public var forgottenCount: Int { table?.forgotten.count ?? 0 }
    public var count: Int { table?.rows.count ?? 0 }
    /// These are all: the table was emptied within the log.
    public var isWhole: Bool { table?.isWhole ?? false }

    private func described(_ row: Row) -> RowAsOf {
        let known = masks[row.relation.fingerprint]
        let values = (known ?? MaskedRelation(row.relation.relation, masking, alsoCalled: [])).shown(row.values)
        let columns = row.relation.relation.columns
        return RowAsOf(
            offset: row.offset,
            key: row.relation.keyColumns.map { values[$0].plainText ?? "" }.joined(separator: ","),
            values: columns.indices.map { (columns[$0].name, values[$0].json(row.relation.renderings[$0])) },
            texts: values.map(\.plainText), row: values, relation: row.relation)
    }
}

extension TableAsOf.Table {
    fileprivate mutating func take(_ change: RecordedChange, _ relation: RecordedRelation) {
        if let left = change.forgotten { return forget(left, change.operation, relation) }
        let key = change.key.map(\.value)
        if !forgotten.isEmpty, let hash = relation.rowKey(fromKey: key) {
            forgotten = forgotten.filter { !$0.fits(hash) }
        }
        switch change.operation {
        case .truncate:
            rows = [:]
            forgotten = []
            isWhole = true
        case .insert: rows[key] = TableAsOf.Row(offset: change.offset, relation: relation, values: change.new)
        case .update:
            let former = rows.removeValue(forKey: change.oldKey ?? key)
            let values = change.new.indices.map { column in
                change.value(of: column) ?? former?.value(relation.relation.columns[column].name) ?? .unchanged
            }
            rows[key] = TableAsOf.Row(offset: change.offset, relation: relation, values: values)
        case .delete: rows[key] = nil
        case .message: break
        }
    }

    /// The row is not known any more under any key that may be its own.
    private mutating func forget(_ left: ForgottenChange, _ operation: Operation, _ relation: RecordedRelation) {
        rows = rows.filter { key, _ in relation.rowKey(fromKey: key).map { !left.fits($0) } ?? true }
        // The day does not tell one row from another.
        for mark in [left.old, left.new].compactMap({ $0 }) { forgotten = forgotten.filter { $0.key != mark.key } }
        if operation != .delete, let mark = left.new { forgotten.insert(mark) }
    }
}

extension TableAsOf.Row {
    fileprivate func value(_ name: String) -> RowValue? { relation.relation.column(named: name).map { values[$0] } }
}
