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
/// All rows are held in memory, up to a number.
public struct TableAsOf: ~Copyable {
    fileprivate struct Row {
        var offset: UInt64
        var relation: RecordedRelation
        var values: [RowValue]
    }

    private var rows: [[RowValue]: Row] = [:]
    /// The log has all of the table: it was emptied, or has every row from its insert on.
    public private(set) var isWhole = false
    public private(set) var gaps: [RecordedGap] = []
    private var masks: [UInt64: Set<Int>] = [:]
    /// Rows that were there before the oldest change that is kept.
    public private(set) var olderRows = 0

    public init(_ log: HistoryLog, _ table: TableName, _ query: HistoryQuery, atMost most: Int) throws {
        let window = try log.window(from: nil, to: query.to)
        let families = try TableFamilies(log)
        let tables = families.tables(called: table)
        let relations = families.schemas.filter { tables.contains($0.identity) }.map(\.relation)
        guard let newest = relations.last else { throw TableAsOfError.unknownTable(table) }
        guard !newest.keyColumns.isEmpty else { throw TableAsOfError.noKey(table) }
        var query = query
        query.tables = [table]
        query.alsoWanted = Set(relations.map(\.fingerprint))
        var reader = try HistoryReader(
            log, query, window: window, matching: Array(Set(relations.map(\.tableKey))))
        while let item = try reader.nextUnmasked() {
            switch item {
            case .gap(let gap): gaps.append(gap)
            case .presence: continue
            case .change(let change):
                guard let relation = change.relation, tables.contains(families.identity(of: relation, in: change.epoch))
                else { continue }
                masks[relation.fingerprint] = reader.masks(of: relation)
                take(change, relation)
                guard rows.count <= most else { throw TableAsOfError.tooManyRows(most: most) }
            }
        }
    }

    private mutating func take(_ change: RecordedChange, _ relation: RecordedRelation) {
        let key = change.key.map(\.value)
        switch change.operation {
        case .truncate:
            rows = [:]
            olderRows = 0
            isWhole = true
        case .insert: rows[key] = Row(offset: change.offset, relation: relation, values: change.new)
        case .update:
            let former = rows.removeValue(forKey: change.oldKey ?? key)
            if former == nil { olderRows += 1 }
            let values = change.new.indices.map { column in
                change.value(of: column) ?? former?.value(relation.relation.columns[column].name) ?? .unchanged
            }
            rows[key] = Row(offset: change.offset, relation: relation, values: values)
        case .delete: if rows.removeValue(forKey: key) == nil { olderRows += 1 }
        case .message: break
        }
    }

    /// In the order in which they became what they are.
    public func visit(_ body: (RowAsOf) throws -> Void) throws {
        for row in rows.values.sorted(by: { $0.offset < $1.offset }) { try body(shown(row)) }
    }

    public var count: Int { rows.count }

    private func shown(_ row: Row) -> RowAsOf {
        let masked = masks[row.relation.fingerprint] ?? []
        let values = row.values.masking(masked)
        let columns = row.relation.relation.columns
        return RowAsOf(
            offset: row.offset,
            key: row.relation.keyColumns.map { values[$0].plainText ?? "" }.joined(separator: ","),
            values: columns.indices.map { (columns[$0].name, values[$0].json(row.relation.renderings[$0])) },
            texts: values.map(\.plainText))
    }
}

extension TableAsOf.Row {
    fileprivate func value(_ name: String) -> RowValue? { relation.relation.column(named: name).map { values[$0] } }
}
