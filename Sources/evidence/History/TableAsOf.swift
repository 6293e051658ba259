import Bytes
import Change
import EventLog

/// A row of a table at a place in the log.
public struct RowAsOf: Sendable {
    /// Evidence that the row existed with these values.
    public enum Witness: String, Sendable {
        /// The last change of the row before the place.
        case change
        /// The first change of the row after the place. It shows the row from before the change.
        case later
        /// A reading from the database. No change touched the row between the reading and the place, whichever came
        /// first.
        case kept
    }

    /// Offset of the witness: of the change, or, for a reading, of the next change after the reading.
    public let offset: UInt64
    public let witness: Witness
    public let key: String
    /// Values by the names that the table's columns had at the witness. `json` is nil if the log does not have the
    /// value.
    public let values: [(name: String, json: String?)]
    /// Values as PostgreSQL writes them; nil if NULL or unknown.
    public let texts: [String?]
    /// Values as PostgreSQL sent them, masked where needed.
    public let row: [RowValue]
    /// Schema that the row had at the witness.
    public let relation: RecordedRelation
}

/// Reason why the rows of a table cannot be reconstructed.
public enum TableAsOfError: Error, Sendable, Equatable {
    case unknownTable(TableName)
    /// The table has no key, so its rows cannot be told apart.
    case noKey(TableName)
    case tooManyRows(most: Int)
}

/// Rows that a table had at a place in the log, reconstructed from the log.
///
/// The last change of a row before the place shows the row. If there is none, the first change after the place shows
/// the row from before that change; an insert shows that there was none. If the log has no change of the row at all, a
/// reading from the database (`KeptRows`) shows it, because the row was the same all the time. Changes after a gap or a
/// truncate show nothing about earlier rows.
///
/// A renamed table stays one table. If several tables had the name, the result shows the one that had it last. A table
/// of a restored database is another table. All rows are held in memory, up to a limit.
public struct TableAsOf: ~Copyable {
    private var tables: [TableFamilies.Identity: TableRows] = [:]
    /// Table that is shown: the last one with a change under the asked name, or else the last one with a change.
    private var shown: TableFamilies.Identity?
    public private(set) var gaps: [RecordedGap] = []
    private var masks: [UInt64: MaskedRelation] = [:]
    private let masking: Masking
    private let mostRows: Int

    /// Reconstructs the rows of a table.
    ///
    /// - Parameter noting: called with each entry's offset; an error that it throws ends the reading.
    public init(
        _ log: HistoryLog, _ table: TableName, _ query: HistoryQuery, atMost most: Int,
        noting: ((UInt64) throws -> Void)? = nil
    ) throws {
        masking = log.masking
        mostRows = most
        let place = try log.window(from: nil, to: query.to)
        let families = try TableFamilies(log, withKept: true)
        let wanted = families.tables(called: table)
        let relations = families.schemas.filter { wanted.contains($0.identity) }.map(\.relation)
        guard let newest = relations.last else { throw TableAsOfError.unknownTable(table) }
        guard !newest.keyColumns.isEmpty else { throw TableAsOfError.noKey(table) }
        let tableKeys = Array(Set(relations.map(\.tableKey)))
        var kept = try KeptParts(log, tableKeys, families, wanted)
        for identity in wanted { tables[identity] = TableRows(table, keepsTrack: kept.areThere) }
        var query = query
        query.tables = [table]
        query.alsoWanted = Set(relations.map(\.fingerprint))
        var reader = try HistoryReader(log, query, window: HistoryWindow(), matching: tableKeys)
        reader.noting = noting
        var (isBehind, isEnded) = (false, false)
        while !isEnded, let item = try reader.nextUnmasked() {
            switch item {
            case .gap(let gap):
                try take(&kept, before: gap.offset)
                isBehind = isBehind || !place.contains(offset: gap.offset, time: gap.time)
                // The lost changes may concern any row.
                isEnded = isBehind
                guard !isEnded else { continue }
                gaps.append(gap)
                for identity in tables.keys { tables[identity]?.noteGap() }
            case .presence, .mark, .kept: continue
            case .change(let change):
                try take(&kept, before: change.offset)
                guard let relation = change.relation else { continue }
                let identity = families.identity(of: relation, in: change.epoch)
                guard wanted.contains(identity) else { continue }
                masks[relation.fingerprint] = reader.masks(of: relation)
                if place.contains(offset: change.offset, time: change.time ?? .min) {
                    show(identity, relation, called: table)
                    tables[identity]?.take(change, relation)
                } else {
                    isBehind = true
                    // A truncate does not show which rows it removed.
                    isEnded = change.operation == .truncate && (shown ?? identity) == identity
                    guard !isEnded else { continue }
                    if shown == nil, relation.table == table { shown = identity }
                    tables[identity]?.take(later: change, relation)
                }
                try check(identity)
            }
        }
        if !isEnded { try take(&kept, before: .max) }
    }

    private mutating func show(
        _ identity: TableFamilies.Identity, _ relation: RecordedRelation, called table: TableName
    ) {
        if relation.table == table || shown.flatMap({ tables[$0]?.name }) != table { shown = identity }
        tables[identity]?.name = relation.table
    }

    private func check(_ identity: TableFamilies.Identity) throws {
        guard tables[identity]?.isWithin(mostRows) ?? true else { throw TableAsOfError.tooManyRows(most: mostRows) }
    }

    /// Applies the parts of readings that precede this change in the log.
    private mutating func take(_ kept: inout KeptParts, before offset: UInt64) throws {
        while let part = try kept.next(before: offset) {
            if shown == nil {
                shown = part.identity
                tables[part.identity]?.name = part.relation.table
            }
            masks[part.relation.fingerprint] =
                masks[part.relation.fingerprint]
                ?? MaskedRelation(part.relation.relation, masking, alsoCalled: part.names)
            try tables[part.identity]?.take(part)
            try check(part.identity)
        }
    }

    private var table: TableRows? { shown.flatMap { tables[$0] } }

    /// Calls `body` for each row, in the order of their offsets.
    public func visit(_ body: (RowAsOf) throws -> Void) throws {
        let rows = table?.rows.values.sorted { ($0.offset, $0.order) < ($1.offset, $1.order) }
        for row in rows ?? [] { try body(described(row)) }
    }

    /// Last name of the table; nil if the log shows nothing of the table at the place.
    public var name: TableName? { table?.name }
    /// Number of rows that existed but are not shown, because their values were removed from the log.
    public var forgottenCount: Int { table?.forgottenCount ?? 0 }
    public var count: Int { table?.rows.count ?? 0 }
    /// True if `isWhole` is reliable only on the condition that the table was published all the time between the place
    /// and the reading. A change that was not published is in no log.
    public var isWholeIfPublished: Bool { table?.isWholeIfPublished ?? false }
    /// True if these are all rows of the table, on the condition that `isWholeIfPublished` states.
    public var isWhole: Bool { table?.isWhole ?? false }

    private func described(_ row: TableRows.Row) -> RowAsOf {
        let known = masks[row.relation.fingerprint]
        let values = (known ?? MaskedRelation(row.relation.relation, masking, alsoCalled: [])).shown(row.values)
        let columns = row.relation.relation.columns
        return RowAsOf(
            offset: row.offset, witness: row.witness,
            key: row.relation.keyColumns.map { values[$0].plainText ?? "" }.joined(separator: ","),
            values: columns.indices.map { (columns[$0].name, values[$0].json(row.relation.renderings[$0])) },
            texts: values.map(\.plainText), row: values, relation: row.relation)
    }
}

/// Part of a reading from the database, with its place in the log.
struct KeptPart {
    let offset: UInt64
    let identity: TableFamilies.Identity
    let relation: RecordedRelation
    let names: Set<TableName>
    let note: KeptRows
}

/// Reader of the parts of readings (`KeptPart`) of some tables, in the order of the log.
private struct KeptParts: ~Copyable {
    private var reader: KeptRowsReader
    private let families: TableFamilies
    private let wanted: Set<TableFamilies.Identity>
    private var waiting: KeptPart?
    /// True if the log has at least one part for these tables.
    let areThere: Bool

    init(_ log: HistoryLog, _ tables: [UInt64], _ families: TableFamilies, _ wanted: Set<TableFamilies.Identity>) throws
    {
        self.families = families
        self.wanted = wanted
        var reader = try KeptRowsReader(log, of: tables)
        let first = try Self.next(&reader, families, wanted)
        self.reader = reader
        waiting = first
        areThere = first != nil
    }

    /// Removes and returns the next part that precedes this change in the log; nil if there is none.
    mutating func next(before offset: UInt64) throws -> KeptPart? {
        guard let part = waiting, part.offset <= offset else { return nil }
        waiting = try Self.next(&reader, families, wanted)
        return part
    }

    private static func next(
        _ reader: inout KeptRowsReader, _ families: TableFamilies, _ wanted: Set<TableFamilies.Identity>
    ) throws -> KeptPart? {
        while let (note, place) = try reader.next() {
            let relation = try RecordedRelation(stored: note.schema.rawBytes)
            let identity = families.identity(of: relation, in: place.epoch)
            guard wanted.contains(identity) else { continue }
            return KeptPart(
                offset: place.offset, identity: identity, relation: relation, names: families.names(of: relation),
                note: note)
        }
        return nil
    }
}
