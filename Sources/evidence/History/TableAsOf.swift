import Bytes
import Change
import EventLog

/// A row as the log has it at a place.
public struct RowAsOf: Sendable {
    /// What tells that it was there, and so.
    public enum Witness: String, Sendable {
        /// The change that made it what it was.
        case change
        /// The change that came upon it later.
        case later
        /// Somebody read it from the database, and nothing touched it between then and the place, whichever came first.
        case kept
    }

    /// Of its witness: of a change, or of the one that came next when it was read.
    public let offset: UInt64
    public let witness: Witness
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

/// A table's name and a place in the log in; the rows that it had there out, as far as the log tells.
///
/// A row is known by the last change of it before the place; or else by the first behind it, which tells what it found (an
/// insert: nothing); or else, where the log has no change of it at all, by who read it from the database (`KeptRows`): then it
/// was the same all the time. Behind a gap, or where the table was emptied, nothing tells of what was before.
///
/// A table that was renamed is one table; of several that had the name, that one is shown which had it last. What a restored
/// database has is another table's. All rows are held in memory, up to a number.
public struct TableAsOf: ~Copyable {
    private var tables: [TableFamilies.Identity: TableRows] = [:]
    /// Of which the last change was that has the name, or else the last of all.
    private var shown: TableFamilies.Identity?
    public private(set) var gaps: [RecordedGap] = []
    private var masks: [UInt64: MaskedRelation] = [:]
    private let masking: Masking
    private let mostRows: Int

    /// - Parameter noting: told of each entry's offset; what it throws ends the reading.
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
                // What was lost may have been of any row.
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
                    // Nothing tells what was there before.
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

    /// Those that stand before this change in the log.
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

    /// In the order in which they became what they are.
    public func visit(_ body: (RowAsOf) throws -> Void) throws {
        let rows = table?.rows.values.sorted { ($0.offset, $0.order) < ($1.offset, $1.order) }
        for row in rows ?? [] { try body(described(row)) }
    }

    /// What it was called last; nil where nothing is known of it then.
    public var name: TableName? { table?.name }
    /// Rows that were there and are not shown: their values were removed from the log.
    public var forgottenCount: Int { table?.forgottenCount ?? 0 }
    public var count: Int { table?.rows.count ?? 0 }
    /// They are all where the table was in the publication all the time between the place and when somebody read it: a change
    /// that was not published is in no log.
    public var isWholeIfPublished: Bool { table?.isWholeIfPublished ?? false }
    /// These are all.
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

/// A part of what somebody read from the database, where it stands in the log.
struct KeptPart {
    let offset: UInt64
    let identity: TableFamilies.Identity
    let relation: RecordedRelation
    let names: Set<TableName>
    let note: KeptRows
}

/// The parts of some tables, one after the other.
private struct KeptParts: ~Copyable {
    private var reader: KeptRowsReader
    private let families: TableFamilies
    private let wanted: Set<TableFamilies.Identity>
    private var waiting: KeptPart?
    /// There were some at the beginning.
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

    /// The next one that stands before this change.
    mutating func next(before offset: UInt64) throws -> KeptPart? {
        guard let part = waiting, part.offset <= offset else { return nil }
        waiting = try Self.next(&reader, families, wanted)
        return part
    }

    private static func next(
        _ reader: inout KeptRowsReader, _ families: TableFamilies, _ wanted: Set<TableFamilies.Identity>
    ) throws -> KeptPart? {
        while let (note, place) = try reader.next() {
            // SAFETY: any byte is a valid UInt8, and the array outlives the call.
            let relation = try RecordedRelation(stored: unsafe note.schema.span.bytes)
            let identity = families.identity(of: relation, in: place.epoch)
            guard wanted.contains(identity) else { continue }
            return KeptPart(
                offset: place.offset, identity: identity, relation: relation, names: families.names(of: relation),
                note: note)
        }
        return nil
    }
}
