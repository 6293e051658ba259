import Bytes
import Change
import Diagnostics
import EventLog

/// The byte patches that remove all values of one row from a log.
///
/// A change belongs to the row if one of its images has the row's key; then both images are removed. The search covers
/// all names and schemas of the table, as `RowHistory` does. The search does not follow a row past a change that gives
/// it another key. Rows read from the database (`KeptRows`) are removed too, and count as changes. All other contents
/// (messages, the ledger, presence, texts of policies) stay in the log.
public struct Forgetting: Sendable {
    public private(set) var patches: [EntryPatch] = []
    /// Number of changes to forget now.
    public private(set) var changes = 0
    /// Number of changes of the row that were forgotten earlier.
    public private(set) var forgotten = 0
    /// Numbers of the segments that have changes to forget.
    public var segments: Set<UInt64> { Set(changesBySegment.keys) }
    private var changesBySegment: [UInt64: Int] = [:]
    /// Number of `changes` that gave the row another key. The log may have more of the row under that key.
    public private(set) var changesOfKey = 0
    /// All names that the table has in the log.
    public private(set) var tables: Set<TableName> = []
    /// Names of the other tables in the log.
    public private(set) var otherTables: Set<TableName> = []

    private let name: RowName
    private let day: UInt16
    private var wanted: Set<TableFamilies.Identity> = []
    private var conditions: [UInt64: Conditions] = [:]

    /// Searches the log for all changes of a row.
    ///
    /// - Parameter time: now, in microseconds since 1970. The patches store its day in place of the values.
    public init(
        of name: RowName, in table: TableName, _ log: HistoryLog, at time: Int64,
        progress: (UInt64) -> Void = { _ in }
    ) throws {
        self.name = name
        day = UInt16(clamping: time / 86_400_000_000)
        _ = try log.segments()
        let families = try TableFamilies(log, withKept: true)
        wanted = families.tables(holding: table)
        let relations = families.schemas.filter { wanted.contains($0.identity) }.map(\.relation)
        guard let newest = relations.last else { throw RowNameError.unknownTable(table) }
        tables = Set(relations.map(\.table))
        otherTables = Set(families.schemas.filter { !wanted.contains($0.identity) }.map(\.relation.table)).subtracting(
            tables)
        for relation in relations { conditions[relation.fingerprint] = Conditions(name, relation) }
        guard !name.operands.isEmpty, !conditions.isEmpty else {
            throw RowNameError.doesNotFit(
                table, key: newest.keyColumns.map { newest.relation.columns[$0].name }, given: name.operands.count)
        }
        // The search is by table: changes under another schema, or without a known key, may belong to the row.
        let keys = Set(
            relations.flatMap { [$0.tableKey, RowKey.kept(table: $0.tableKey)] }
                + (tables.contains(where: \.isOfMessages) ? [MessageTable.key] : []))
        var reader = try EventLogReader(directory: log.directory, from: .oldest, matchingAnyOf: Array(keys))
        while try reader.next() {
            switch reader.entry.kind {
            case .transaction: try look(at: reader.payload, of: reader.entry, families)
            case .keptRows: try look(atKept: reader.payload, of: reader.entry, families)
            default: continue
            }
            progress(reader.entry.offset)
        }
    }

    /// Returns the number of `changes` in segments before this one.
    public func changes(before segment: UInt64) -> Int {
        changesBySegment.reduce(0) { $0 + ($1.key < segment ? $1.value : 0) }
    }

    /// Key columns and values that identify the row's changes under one schema.
    private struct Conditions {
        let relation: RecordedRelation
        let columns: [(column: Int, value: [UInt8])]

        init?(_ name: RowName, _ relation: RecordedRelation) {
            let named = name.named(in: relation.relation)
            let values = named?.map(\.value) ?? name.operands
            let columns = named?.map(\.column) ?? relation.keyColumns
            guard !columns.isEmpty, columns.count == values.count else { return nil }
            self.relation = relation
            self.columns = zip(columns, values).map { column, value in
                (column, Array(ValueSpelling.normal(value, type: relation.relation.columns[column].typeOID).utf8))
            }
        }

        func hold(for row: borrowing Tuple) throws(ByteError) -> Bool {
            for (column, value) in columns {
                guard case .text(let text)? = try row.value(at: column), text.equals(value.rawBytes) else {
                    return false
                }
            }
            return true
        }
    }

    private mutating func look(at payload: RawSpan, of entry: EventLogEntry, _ families: TableFamilies) throws {
        var part: TransactionPart
        var found = false
        do throws(ByteError) {
            part = try TransactionPart(payload)
            while let change = try part.next() {
                guard let conditions = conditions[change.relation], Self.hasRow(change.operation),
                    wanted.contains(families.identity(of: conditions.relation, in: entry.epoch))
                else { continue }
                if change.isForgotten {
                    if Self.fits(change, conditions) { forgotten += 1 }
                    continue
                }
                guard try Self.concerns(change, conditions) else { continue }
                found = true
                forget(change, endingAt: part.offset, conditions.relation, entry)
            }
        } catch {
            throw UnreadableEntry(offset: entry.offset, segment: entry.segment, reason: error.description)
        }
        guard found else { return }
        patches.append(
            EntryPatch(segment: entry.segment, entry: entry.position, at: 1, byteCount: 1, bytes: [payload.byte(1) | 1])
        )
        try checkSize()
    }

    private func checkSize() throws {
        guard patches.count <= Limits.maximumErasurePatches else { throw ForgettingError.tooMuch(changes: changes) }
    }

    private mutating func look(atKept payload: RawSpan, of entry: EventLogEntry, _ families: TableFamilies) throws {
        var found: [(start: Int, length: Int, Conditions)] = []
        do throws(ByteError) {
            var current: Conditions?
            try KeptRowsCodec.visit(
                payload,
                { (note) throws(ByteError) in
                    let known = conditions[RelationCodec.fingerprint(of: note.schema.rawBytes)]
                    current = known.flatMap {
                        wanted.contains(families.identity(of: $0.relation, in: entry.epoch)) ? $0 : nil
                    }
                },
                { (isForgotten, image, start) throws(ByteError) in
                    guard let current else { return }
                    let tuple = Tuple(image)
                    if isForgotten {
                        let hash = Self.keyHash(current)
                        if let hash, ForgottenMark(tuple)?.fits(hash) ?? false { forgotten += 1 }
                    } else if try current.hold(for: tuple) {
                        found.append((start, image.byteCount, current))
                    }
                })
        } catch {
            throw UnreadableEntry(offset: entry.offset, segment: entry.segment, reason: error.description)
        }
        for (start, length, conditions) in found {
            changes += 1
            changesBySegment[entry.segment, default: 0] += 1
            add(entry, at: start - KeptRowsCodec.rowHeadBytes, byteCount: 1, [KeptRowsCodec.forgottenFlag])
            add(entry, at: start, Tuple(payload.extracting(start..<start + length)), conditions.relation)
        }
        try checkSize()
    }

    private static func hasRow(_ operation: Operation) -> Bool { [.insert, .update, .delete].contains(operation) }

    private static func concerns(_ change: borrowing Change, _ conditions: Conditions) throws(ByteError) -> Bool {
        if let new = change.new, try conditions.hold(for: new) { return true }
        guard let old = change.old else { return false }
        return try conditions.hold(for: old)
    }

    private static func fits(_ change: borrowing Change, _ conditions: Conditions) -> Bool {
        keyHash(conditions).map(ForgottenChange(change).fits) ?? false
    }

    /// Returns the hash of the row's key; nil if the name does not consist of exactly the key columns.
    private static func keyHash(_ conditions: Conditions) -> UInt64? {
        let relation = conditions.relation
        guard Set(conditions.columns.map(\.column)) == Set(relation.keyColumns), !relation.keyColumns.isEmpty else {
            return nil
        }
        let key = relation.keyColumns.compactMap { column in
            conditions.columns.first { $0.column == column }.map { RowValue.text($0.value) }
        }
        return relation.rowKey(fromKey: key)
    }

    /// Adds the patches for a change. The flags are the fourth byte of the change's head, which lies before the images.
    private mutating func forget(
        _ change: borrowing Change, endingAt end: Int, _ relation: RecordedRelation, _ entry: EventLogEntry
    ) {
        let start = end - change.images.byteCount
        changes += 1
        changesBySegment[entry.segment, default: 0] += 1
        add(entry, at: start - Self.bytesFromFlags, byteCount: 1, [1])
        if let old = change.old {
            add(entry, at: start, old, relation)
            if let new = change.new, relation.rowKey(inTuple: old.bytes) != relation.rowKey(inTuple: new.bytes) {
                changesOfKey += 1
            }
        }
        if let new = change.new { add(entry, at: start + change.oldLength, new, relation) }
    }

    /// Distance from the flags to the images. The relation and the length of the old image lie between them.
    private static let bytesFromFlags = 13

    private mutating func add(
        _ entry: EventLogEntry, at place: Int, _ image: borrowing Tuple, _ relation: RecordedRelation
    ) {
        let left = ForgottenMark.image(
            columns: image.columnCount, byteCount: image.bytes.byteCount, day: day,
            keyHash: relation.rowKey(inTuple: image.bytes))
        add(entry, at: place, byteCount: image.bytes.byteCount, left)
    }

    private mutating func add(_ entry: EventLogEntry, at place: Int, byteCount: Int, _ bytes: [UInt8]) {
        patches.append(
            EntryPatch(segment: entry.segment, entry: entry.position, at: place, byteCount: byteCount, bytes: bytes))
    }
}

public enum ForgettingError: Error, Sendable, Equatable {
    /// The row needs more patches than one erasure can record.
    case tooMuch(changes: Int)
}

extension TableName {
    var isOfMessages: Bool { schema == MessageTable.schema && name == MessageTable.name }
}

extension TableFamilies {
    /// Returns the tables that once had this name; for the table of messages, its partitions too.
    func tables(holding name: TableName) -> Set<Identity> {
        guard name.isOfMessages else { return tables(called: name) }
        return tables(called: name).union(
            schemas.filter { MessageTable.holds($0.relation.relation) }.map(\.identity))
    }
}

/// Counter of the forgotten changes in one entry.
public enum ForgottenCount {
    public static func of(_ kind: EntryKind, _ payload: RawSpan) -> Int {
        if kind == .keptRows {
            var count = 0
            try? KeptRowsCodec.visit(
                payload, { (_) throws(ByteError) in },
                { (isForgotten, _, _) throws(ByteError) in count += isForgotten ? 1 : 0 })
            return count
        }
        guard kind == .transaction, var part = try? TransactionPart(payload), part.hasForgotten else { return 0 }
        var count = 0
        while let change = try? part.next() { if change.isForgotten { count += 1 } }
        return count
    }
}
