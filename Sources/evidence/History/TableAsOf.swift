import Bytes
import Change
import EventLog

/// Row of a table at a position in the log, with the evidence for it.
public struct RowAsOf: Sendable {
    /// Kind of evidence that the row existed with these values.
    public enum Witness: String, Sendable {
        /// Last change of the row before the position.
        case change
        /// First change of the row after the position; it contains the row as it was before the change.
        case later
        /// Row that the hub read from the database (a backfill). No change of the row lies between the reading and the
        /// position, whichever of them is earlier.
        case kept
    }

    /// Offset of the evidence: of the change, or, for a row read from the database, of the next change after the
    /// reading.
    public let offset: UInt64
    public let witness: Witness
    public let key: String
    /// Values as PostgreSQL sent them, masked by the log's rules. Their schema is `relation`.
    public let row: [RowValue]
    /// Schema of the table for this row at the evidence's offset.
    public let relation: RecordedRelation

    /// Values as JSON, with the column names of that schema; nil if the log does not have the value.
    public var values: [(name: String, json: String?)] {
        let columns = relation.relation.columns
        return columns.indices.map { (columns[$0].name, row[$0].json(relation.renderings[$0])) }
    }

    /// Values as PostgreSQL writes them as text; nil if NULL or unknown.
    public var texts: [String?] { row.map(\.plainText) }
}

/// Reason why the rows of a table cannot be reconstructed.
public enum TableAsOfError: Error, Sendable, Equatable {
    case unknownTable(TableName)
    /// The table has no key, so its rows cannot be told apart.
    case noKey(TableName)
    case tooManyRows(most: Int)
}

/// Rows that a table had at a position in the log, reconstructed from the log.
///
/// The last change of a row before the place shows the row. If there is none, the first change after the place shows
/// the row from before that change; an insert shows that there was none. If the log has no change of the row at all, a
/// reading from the database (`KeptRows`) shows it, because the row was the same all the time. Changes after a gap or a
/// truncate show nothing about earlier rows.
///
/// A renamed table stays one table. If several tables had the name, the result shows the one that had it last. A table
/// of a restored database is another table. All rows are held in memory, up to a limit.
public struct TableAsOf: ~Copyable {
    private var gathering: Gathering
    public var gaps: [RecordedGap] { gathering.gaps }

    /// Reconstructs the rows of a table.
    ///
    /// - Parameter noting: called with each entry's offset; an error that it throws ends the reading.
    public init(
        _ log: HistoryLog, _ table: TableName, _ query: HistoryQuery, atMost most: Int,
        noting: ((UInt64) throws -> Void)? = nil
    ) throws {
        let place = try log.window(from: nil, to: query.to)
        let families = try TableFamilies(log, withKept: true)
        let wanted = families.tables(called: table)
        let relations = families.schemas.filter { wanted.contains($0.identity) }.map(\.relation)
        guard let newest = relations.last else { throw TableAsOfError.unknownTable(table) }
        guard !newest.keyColumns.isEmpty else { throw TableAsOfError.noKey(table) }
        let tableKeys = Array(Set(relations.map(\.tableKey)))
        var kept = try KeptParts(log, tableKeys, families, wanted)
        var gathering = Gathering(
            of: table, wanted, families, place, log.masking, keepsTrack: kept.areThere, mostRows: most)
        var query = query
        query.tables = [table]
        query.alsoWanted = Set(relations.map(\.fingerprint))
        var reader = try HistoryReader(log, query, window: HistoryWindow(), matching: tableKeys)
        reader.noting = noting
        var keys = StoredKeyPair()
        while !gathering.isEnded {
            let isMore = try reader.visitEntry { reader, entry in
                switch entry.kind {
                case .relation: try reader.learn()
                case .gap: if let gap = try reader.gap(entry) { try gathering.take(gap, &kept) }
                case .transaction: try gathering.take(entry, reader, &kept, &keys)
                default: break
                }
            }
            if !isMore { break }
        }
        if !gathering.isEnded { try gathering.take(&kept, before: .max) }
        self.gathering = gathering
    }

    private var table: TableRows? { gathering.table }

    /// Calls `body` for each row, in the order of their offsets.
    public func visit(_ body: (RowAsOf) throws -> Void) throws {
        try table?.forEach { try body(gathering.described($0)) }
    }

    /// Last name of the table; nil if the log shows no change of the table.
    public var name: TableName? { table?.name }
    /// Number of rows that existed but are not shown, because their values were erased from the log.
    public var forgottenCount: Int { table?.forgottenCount ?? 0 }
    public var count: Int { table?.count ?? 0 }
    /// True if `isWhole` holds only on a condition: the table was in the publication all the time between the position
    /// and the reading from the database. Changes of a table outside the publication are not in the log.
    public var isWholeIfPublished: Bool { table?.isWholeIfPublished ?? false }
    /// True if these are all rows of the table. See `isWholeIfPublished` for a condition.
    public var isWhole: Bool { table?.isWhole ?? false }
}

/// Rows of the tables that had a given name, gathered from the log's entries in their order.
private struct Gathering {
    private let asked: TableName
    private let wanted: Set<TableFamilies.Identity>
    private let families: TableFamilies
    private let place: HistoryWindow
    private let masking: Masking
    private let mostRows: Int
    private var tables: [TableRows] = []
    private var indexes: [TableFamilies.Identity: Int] = [:]
    /// Index of the table whose rows are the result: the last one with a change under the given name, or else the last
    /// one with any change.
    private var shown: Int?
    private(set) var gaps: [RecordedGap] = []
    private var masks: [UInt64: MaskedRelation] = [:]
    private var isBehind = false
    /// True if further entries of the log cannot add anything to the result.
    private(set) var isEnded = false
    /// Schema and table of the previous change, kept because most changes have the same ones as the change before.
    private var last: (fingerprint: UInt64, epoch: UInt64, index: Int, relation: RecordedRelation)?

    init(
        of table: TableName, _ wanted: Set<TableFamilies.Identity>, _ families: TableFamilies, _ place: HistoryWindow,
        _ masking: Masking, keepsTrack: Bool, mostRows: Int
    ) {
        (asked, self.wanted, self.families, self.place) = (table, wanted, families, place)
        (self.masking, self.mostRows) = (masking, mostRows)
        for identity in wanted {
            indexes[identity] = tables.count
            tables.append(TableRows(table, keepsTrack: keepsTrack))
        }
    }

    var table: TableRows? { shown.map { tables[$0] } }

    mutating func take(_ gap: RecordedGap, _ kept: inout KeptParts) throws {
        try take(&kept, before: gap.offset)
        isBehind = isBehind || !place.contains(offset: gap.offset, time: gap.time)
        // Any row may have changed in the gap.
        isEnded = isBehind
        guard !isEnded else { return }
        gaps.append(gap)
        for index in tables.indices { tables[index].noteGap() }
    }

    /// Applies the changes of a transaction, or of a part of it, to the tables.
    mutating func take(
        _ entry: EventLogEntry, _ reader: borrowing HistoryReader, _ kept: inout KeptParts, _ keys: inout StoredKeyPair
    ) throws {
        let time = reader.time(of: entry)
        var part = try TransactionPart(reader.reader.payload)
        var offset = entry.offset
        while !isEnded, let change = try part.next() {
            defer { offset += 1 }
            guard change.operation != .message else { continue }
            let (index, relation) = try table(of: change.relation, entry, reader)
            guard let index else { continue }
            try take(&kept, before: offset)
            if place.contains(offset: offset, time: time) {
                show(index, relation)
                if try !tables[index].take(stored: change, at: offset, relation, &keys) {
                    try tables[index].take(try reader.recorded(change, offset, entry, part.info, relation), relation)
                }
            } else {
                isBehind = true
                // A truncate does not show which rows it removed.
                isEnded = change.operation == .truncate && (shown ?? index) == index
                guard !isEnded else { return }
                if shown == nil, relation.table == asked { shown = index }
                if try tables[index].knows(later: change, relation, &keys) { continue }
                tables[index].take(
                    later: try reader.recorded(change, offset, entry, part.info, relation), relation)
            }
            guard tables[index].isWithin(mostRows) else { throw TableAsOfError.tooManyRows(most: mostRows) }
        }
    }

    /// Returns the schema of a change, and the index in `tables` of its table; the index is nil for a table that is not
    /// wanted.
    private mutating func table(
        of fingerprint: UInt64, _ entry: EventLogEntry, _ reader: borrowing HistoryReader
    ) throws -> (Int?, RecordedRelation) {
        if let last, last.fingerprint == fingerprint, last.epoch == entry.epoch { return (last.index, last.relation) }
        guard let prepared = reader.relations[fingerprint] else {
            throw ByteError(expected: "the schema of each change before it", offset: 0)
        }
        let identity = families.identity(of: prepared.known, in: entry.epoch)
        guard prepared.isWanted, let index = indexes[identity] else { return (nil, prepared.known) }
        masks[fingerprint] = prepared.masked
        last = (fingerprint, entry.epoch, index, prepared.known)
        return (index, prepared.known)
    }

    /// Makes the table at this index the result, unless the present result is a table with the given name and this one
    /// has another.
    private mutating func show(_ index: Int, _ relation: RecordedRelation) {
        guard shown != index || tables[index].name != relation.table else { return }
        if relation.table == asked || shown.map({ tables[$0].name }) != asked { shown = index }
        tables[index].name = relation.table
    }

    /// Adds the rows of readings from the database that stand before this change in the log.
    mutating func take(_ kept: inout KeptParts, before offset: UInt64) throws {
        while let part = try kept.next(before: offset) {
            guard let index = indexes[part.identity] else { continue }
            if shown == nil {
                shown = index
                tables[index].name = part.relation.table
            }
            masks[part.relation.fingerprint] =
                masks[part.relation.fingerprint]
                ?? MaskedRelation(part.relation.relation, masking, alsoCalled: part.names)
            try tables[index].take(part)
            guard tables[index].isWithin(mostRows) else { throw TableAsOfError.tooManyRows(most: mostRows) }
        }
    }

    /// Returns the row with masked values and its key as a text.
    func described(_ row: TableRows.Row) -> RowAsOf {
        let known = masks[row.relation.fingerprint]
        let values = (known ?? MaskedRelation(row.relation.relation, masking, alsoCalled: [])).shown(row.values)
        return RowAsOf(
            offset: row.offset, witness: row.witness,
            key: row.relation.keyColumns.map { values[$0].plainText ?? "" }.joined(separator: ","), row: values,
            relation: row.relation)
    }
}

extension HistoryReader {
    /// Returns a change with all its values, unmasked.
    fileprivate func recorded(
        _ change: borrowing Change, _ offset: UInt64, _ entry: EventLogEntry, _ info: TransactionInfo,
        _ relation: RecordedRelation
    ) throws(ByteError) -> RecordedChange {
        var recorded = RecordedChange(
            offset: offset, epoch: entry.epoch, transaction: info, index: 0, operation: change.operation,
            oldImage: change.oldImage, options: change.options, relation: relation, old: [], new: [])
        recorded.forgotten = change.isForgotten ? ForgottenChange(change) : nil
        if let old = change.old { recorded.old = try Self.values(old, of: relation) }
        if let new = change.new { recorded.new = try Self.values(new, of: relation) }
        recorded.compareImages()
        return recorded
    }
}

/// Part of a table's rows that the hub read from the database, with its position in the log.
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
