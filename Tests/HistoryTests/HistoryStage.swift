import Bytes
import Change
import EventLog
import System
import TestSupport

@testable import History

/// Names of the types of `History`. The recording sink of `TestSupport` has types with the same names.
typealias RecordedChange = History.RecordedChange
typealias RecordedTransaction = History.RecordedTransaction

/// Returns a row image in PostgreSQL's form.
func tuple(_ values: [RowValue]) -> [UInt8] {
    var writer = ByteWriter()
    writer.append(big: UInt16(values.count))
    for value in values {
        switch value {
        case .null, .masked: writer.append(UInt8(ascii: "n"))
        case .unchanged: writer.append(UInt8(ascii: "u"))
        case .text(let bytes):
            writer.append(UInt8(ascii: "t"))
            writer.append(big: UInt32(bytes.count))
            writer.append(bytes)
        case .binary(let bytes):
            writer.append(UInt8(ascii: "b"))
            writer.append(big: UInt32(bytes.count))
            writer.append(bytes)
        }
    }
    return writer.bytes.copied()
}

extension RowValue {
    var isMasked: Bool { if case .masked = self { true } else { false } }
}

extension RowValue: ExpressibleByStringLiteral {
    public init(stringLiteral text: String) { self = .text(Array(text.utf8)) }
}

func column(_ name: String, _ oid: UInt32 = 25, key: Bool = false, identity: Bool? = nil) -> Column {
    Column(
        name: name, typeOID: oid, typeName: BuiltInType.name(of: oid) ?? "mine", isIdentity: identity ?? key,
        isPrimaryKey: key)
}

/// Change that a test writes into the log.
struct Put {
    var operation: Operation
    var relation: Relation?
    var oldImage = OldImage.none
    var old: [RowValue] = []
    var new: [RowValue] = []
    var options: UInt8 = 0
    var prefix: [UInt8] = []
    var content: [UInt8] = []

    static func insert(_ relation: Relation, _ row: [RowValue]) -> Put {
        Put(operation: .insert, relation: relation, new: row)
    }

    static func update(_ relation: Relation, _ row: [RowValue], old: [RowValue] = [], _ image: OldImage = .none) -> Put
    {
        Put(operation: .update, relation: relation, oldImage: image, old: old, new: row)
    }

    static func delete(_ relation: Relation, _ old: [RowValue], _ image: OldImage = .key) -> Put {
        Put(operation: .delete, relation: relation, oldImage: image, old: old)
    }

    static func truncate(_ relation: Relation, options: UInt8 = 0) -> Put {
        Put(operation: .truncate, relation: relation, options: options)
    }

    static func message(_ prefix: [UInt8], _ content: [UInt8], transactional: Bool = true) -> Put {
        Put(operation: .message, options: transactional ? 1 : 0, prefix: prefix, content: content)
    }
}

/// Log in memory, written as ingest does: schemas before their first use in each segment, large transactions in parts.
final class HistoryStage {
    let storage = FaultyStorage()
    let writer: EventLogWriter
    var lsn: UInt64 = 0x1000
    private var written: Set<UInt64> = []
    private var writtenIn: UInt64 = 0

    init(segmentBytes: UInt64 = 1 << 20) throws {
        var options = EventLogOptions(source: 99)
        options.segmentBytes = segmentBytes
        options.preparesSegments = false
        options.keyScheme = RowKey.scheme
        options.now = { 1 }
        let epochs = Counter(7)
        options.newEpoch = { epochs.next() }
        writer = try EventLogWriter(directory: storage, options: options)
    }

    var log: HistoryLog { HistoryLog(directory: storage, masking: .nothing) }

    /// Returns all rows of a table, as if read from the database in one part.
    func read(_ rows: [[RowValue]], of relation: Relation) -> KeptRows {
        var schema = ByteWriter()
        RelationCodec.encode(relation, to: &schema)
        return KeptRows(
            reading: 1, lsn: LSN(lsn), time: 1_000_000, part: 0, isLast: true, schema: schema.copied(),
            rows: rows.map { KeptRows.Row(image: tuple($0)) })
    }

    /// Writes rows that were read from the database into the log.
    func keep(_ rows: KeptRows) throws {
        var payload = ByteWriter()
        KeptRowsCodec.encode([rows], to: &payload)
        try writer.rollIfNeeded(adding: payload.count)
        try writer.append(
            kind: .keptRows, lsn: max(lsn, writer.appendedLSN), time: 1_000_000, payload: payload.bytes,
            keys: rows.keys.span)
        try writer.flush()
    }

    @discardableResult
    func commit(
        _ puts: [Put], xid: UInt32 = 1, time: Int64 = 1_000_000, origin: String = "", partSize: Int = .max
    ) throws -> TransactionInfo {
        let info = TransactionInfo(
            xid: xid, commitLSN: LSN(lsn), endLSN: LSN(lsn + 0x30), commitTime: time, origin: origin)
        let before = lsn
        var index = 0
        repeat {
            let part = puts[index..<min(puts.count, index + min(partSize, puts.count))]
            let isLast = part.endIndex == puts.count
            try append(
                Array(part), info, firstIndex: index, isLast: isLast, lsn: isLast ? info.endLSN.rawValue : before)
            index = part.endIndex
        } while index < puts.count
        lsn += 0x40
        try writer.flush()
        return info
    }

    private func append(
        _ puts: [Put], _ info: TransactionInfo, firstIndex: Int, isLast: Bool, lsn: UInt64
    ) throws {
        var payload = ByteWriter()
        var keys = [RowKey.transaction(xid: info.xid)]
        TransactionCodec.begin(info, firstIndex: UInt32(firstIndex), to: &payload)
        var used: [(fingerprint: UInt64, bytes: [UInt8])] = []
        for put in puts {
            var fingerprint: UInt64 = 0
            if let relation = put.relation {
                var encoded = ByteWriter()
                RelationCodec.encode(relation, to: &encoded)
                fingerprint = RelationCodec.fingerprint(of: encoded.bytes)
                used.append((fingerprint, encoded.bytes.copied()))
                let known = RecordedRelation(relation, fingerprint: fingerprint)
                keys += [known.tableKey]
                if put.operation == .truncate { keys.append(known.unkeyed) }
                for row in [put.old, put.new] where !row.isEmpty { keys.append(known.rowKey(row) ?? known.unkeyed) }
            }
            let isMessage = put.operation == .message
            let old = isMessage ? put.prefix : put.oldImage == .none ? [] : tuple(put.old)
            let new = isMessage ? put.content : put.new.isEmpty ? [] : tuple(put.new)
            TransactionCodec.append(
                put.operation, relation: fingerprint, oldImage: put.oldImage, old: old.span.bytes, new: new.span.bytes,
                options: put.options, to: &payload)
        }
        TransactionCodec.finish(endLSN: isLast ? info.endLSN : .zero, changeCount: UInt32(puts.count), in: &payload)
        if !writer.isInsideTransaction { try writer.rollIfNeeded(adding: payload.count) }
        if writer.segmentSequence != writtenIn { written = [] }
        writtenIn = writer.segmentSequence
        for schema in used where !written.contains(schema.fingerprint) {
            try writer.append(
                kind: .relation, continued: writer.isInsideTransaction, lsn: writer.appendedLSN, time: info.commitTime,
                payload: schema.bytes.span.bytes)
            written.insert(schema.fingerprint)
        }
        try writer.append(
            kind: .transaction, continued: !isLast, changeCount: UInt32(puts.count), lsn: max(lsn, writer.appendedLSN),
            time: info.commitTime, payload: payload.bytes, keys: keys.span)
    }

    func idle(time: Int64) throws {
        lsn += 8
        try writer.append(kind: .progress, lsn: lsn, time: time, payload: RawSpan())
        try writer.flush()
    }

    func note(_ marks: [PresenceMark], time: Int64) throws {
        var payload = ByteWriter()
        PresenceCodec.encode(marks, to: &payload)
        try writer.append(kind: .presence, lsn: writer.appendedLSN, time: time, payload: payload.bytes)
        try writer.flush()
    }

    func note(_ records: [CatalogRecord], time: Int64) throws {
        var payload = ByteWriter()
        CatalogRecordCodec.encode(records, to: &payload)
        try writer.append(
            kind: .catalogRecord, lsn: writer.appendedLSN, time: time, payload: payload.bytes,
            keys: [RowKey.catalog].span)
        try writer.flush()
    }

    func note(_ notes: [LedgerNote]) throws {
        var payload = ByteWriter()
        LedgerCodec.encode(notes, to: &payload)
        try writer.append(
            kind: .ledger, lsn: writer.appendedLSN, time: notes[0].time, payload: payload.bytes,
            keys: Array(Set(notes.flatMap(\.keys))).span)
        try writer.flush()
    }

    func gap(_ reason: Gap.Reason = .slotMissing, to newLSN: UInt64? = nil, time: Int64 = 1_000_000) throws {
        let from = LSN(writer.appendedLSN)
        lsn = newLSN ?? lsn + 0x100
        var payload = ByteWriter()
        GapCodec.encode(Gap(reason: reason, from: from, to: LSN(lsn)), to: &payload)
        try writer.beginEpoch(lsn: lsn, time: time, payload: payload.bytes)
        try writer.flush()
    }
}

extension HistoryLog {
    func items(_ query: HistoryQuery) throws -> [HistoryItem] {
        var reader = try HistoryReader(self, query)
        var items: [HistoryItem] = []
        while let item = try reader.next() { items.append(item) }
        return items
    }

    func offsets(_ query: HistoryQuery) throws -> [UInt64] { try items(query).compactMap { $0.recorded?.offset } }

    /// Returns the same log for a reader from whom the given columns are hidden.
    func hiding(_ texts: String...) -> HistoryLog {
        HistoryLog(directory: directory, masking: Masking(.none, hiding: texts.compactMap { ColumnMask($0) }))
    }

    func export(from: HistoryBound? = nil, to: HistoryBound? = nil) throws -> [[UInt8]] {
        var lines: [[UInt8]] = []
        var export = try LogExport(self, from: from, to: to)
        try export.run { lines.append($0.copied()) }
        return lines
    }
}

extension HistoryItem {
    var recorded: RecordedChange? { if case .change(let change) = self { change } else { nil } }
}

/// Returns the log that an import makes from lines of an export.
func imported(_ lines: [[UInt8]], segmentBytes: UInt64 = 3000) throws -> HistoryLog {
    let storage = FaultyStorage()
    let log = LogImport(into: storage, segmentBytes: segmentBytes)
    for line in lines { try log.take(line.span.bytes.extracting(0..<line.count - 1)) }
    try log.finish()
    return HistoryLog(directory: storage, masking: .nothing)
}
