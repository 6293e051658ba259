import Bytes
import Change
import FuzzSupport
import TestSupport

@_cdecl("LLVMFuzzerInitialize")
public func initialize(_ count: UnsafeMutablePointer<CInt>, _ arguments: UnsafeRawPointer) -> CInt {
    writeSeeds([
        [0] + storedRelation(), [1] + storedPart(), [1] + storedEmptyPart(), [2] + storedPresence(),
        [3] + storedLedger(), [4] + storedCatalog(), [5] + storedRows(),
    ])
    return 0
}

/// Fuzz target of the log's decoders. Input: a byte that selects the kind, then a stored relation, part of a
/// transaction, presence, part of the ledger, catalog, or rows read from the database.
@_cdecl("LLVMFuzzerTestOneInput")
public func test(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = input(start, count)
    guard let kind = bytes.first else { return 0 }
    let stored = Array(bytes.dropFirst())
    // For malformed input, a decoder may only throw an error.
    switch kind % 6 {
    case 0: try? readRelation(stored)
    case 1: try? readPart(stored)
    case 2: try? readPresence(stored)
    case 3: try? readLedger(stored)
    case 4: try? readCatalog(stored)
    default: try? readRows(stored)
    }
    return 0
}

private func readRelation(_ stored: [UInt8]) throws {
    let relation = try RelationCodec.decode(stored.span.bytes)
    _ = relation.keyColumns
    _ = relation.description
    // Invalid UTF-8 is replaced. This may make a name too long for a length of 16 bits.
    let names = relation.columns.flatMap { [$0.name, $0.typeName] } + [relation.schema, relation.name]
    guard names.allSatisfy({ $0.utf8.count <= UInt16.max }) else { return }
    var writer = ByteWriter()
    RelationCodec.encode(relation, to: &writer)
    let again = try RelationCodec.decode(writer.bytes)
    precondition(again == relation, "a relation came back as another")
}

private func storedLedger() -> [UInt8] {
    var writer = ByteWriter()
    let notes = LedgerNote.Event.allCases.map { event in
        var note = LedgerNote(event, time: 1, session: 2, channel: 3, offset: 4, received: 5)
        note.topic = Array("room".utf8)
        note.claims = Array("{}".utf8)
        if event == .delivered { note.deliveries = storedDeliveries() }
        note.isRecorded = event == .joined
        return note
    }
    LedgerCodec.encode(notes, to: &writer)
    return writer.copied()
}

private func storedDeliveries() -> [UInt8] {
    var writer = DeliveryBlockWriter()
    let seats = (0..<5).map { writer.seat(session: UInt64($0) << 20, channel: 1) }
    writer.beginTurn(at: 1, changes: 2)
    writer.append(7, to: seats.span)
    let others = [seats[3], seats[0]]
    writer.append(9, to: others.span)
    return writer.take()
}

private func readLedger(_ stored: [UInt8]) throws {
    let notes = try LedgerCodec.decode(stored.span.bytes)
    for note in notes where note.event == .delivered {
        var count = 0
        try? DeliveryBlock.read(note.deliveries.span.bytes, from: note.time) { _ in count += 1 }
        _ = note.keys
    }
    var writer = ByteWriter()
    LedgerCodec.encode(notes, to: &writer)
    precondition(writer.copied() == stored, "the ledger came back as something else")
}

private func storedCatalog() -> [UInt8] {
    var writer = ByteWriter()
    let answers = [
        CatalogRecord.Answer(question: 7, rows: [["a", nil], []]), CatalogRecord.Answer(question: 8, failure: "42501"),
    ]
    let record = CatalogRecord(
        time: 1, since: 2, unknownFrom: 2, serverVersion: 150_000, publication: "p", awaited: [9], roles: ["anon"],
        answers: answers)
    CatalogRecordCodec.encode([record], to: &writer)
    return writer.copied()
}

/// Checks a stored catalog. Encoding may replace invalid UTF-8 and so make the result longer. Encoding it again must
/// not change it further.
private func readCatalog(_ stored: [UInt8]) throws {
    let records = try CatalogRecordCodec.decode(stored.span.bytes)
    var writer = ByteWriter()
    CatalogRecordCodec.encode(records, to: &writer)
    let again = try CatalogRecordCodec.decode(writer.bytes)
    precondition(again == records, "a catalog came back as another")
}

private func storedRows() -> [UInt8] {
    var writer = ByteWriter()
    let rows = [
        KeptRows.Row(image: PgOutput.tuple([1, nil])), KeptRows.Row(image: PgOutput.tuple([2, 3]), isForgotten: true),
    ]
    let note = KeptRows(
        reading: 1, lsn: LSN(100), time: 1, part: 0, isLast: true, schema: storedRelation(), rows: rows)
    KeptRowsCodec.encode([note], to: &writer)
    return writer.copied()
}

/// Checks stored rows. A second encoding does not keep unknown flags.
private func readRows(_ stored: [UInt8]) throws {
    let notes = try KeptRowsCodec.decode(stored.span.bytes)
    precondition(KeptRowsCodec.keys(of: stored.span.bytes) != nil, "rows that are read have keys")
    var writer = ByteWriter()
    KeptRowsCodec.encode(notes, to: &writer)
    let again = try KeptRowsCodec.decode(writer.bytes)
    precondition(again == notes, "rows came back as others")
    for note in notes {
        for row in note.rows {
            let tuple = Tuple(row.image.span.bytes)
            walk(tuple)
        }
    }
}

private func storedPresence() -> [UInt8] {
    var writer = ByteWriter()
    let marks = PresenceMark.Event.allCases.map { event in
        PresenceMark(
            event: event, isPrivate: event == .left, time: 1, topic: Array("room".utf8), key: [49], ref: [50],
            meta: Array("{}".utf8))
    }
    PresenceCodec.encode(marks, to: &writer)
    return writer.copied()
}

private func readPresence(_ stored: [UInt8]) throws {
    let marks = try PresenceCodec.decode(stored.span.bytes)
    var writer = ByteWriter()
    PresenceCodec.encode(marks, to: &writer)
    precondition(writer.copied() == stored, "presence came back as something else")
}

private func readPart(_ stored: [UInt8]) throws {
    var part = try TransactionPart(stored.span.bytes)
    var writer = ByteWriter()
    let info = part.info
    TransactionCodec.begin(info, firstIndex: part.firstIndex, to: &writer)
    let count = part.changeCount
    var seen: UInt32 = 0
    while let change = try part.next() {
        seen += 1
        walk(change)
        TransactionCodec.append(
            change.operation, relation: change.relation, oldImage: change.oldImage, old: change.messagePrefix,
            new: change.messageContent, options: change.options, to: &writer)
    }
    precondition(seen == count, "a part that says \(count) changes gave \(seen)")
    TransactionCodec.finish(endLSN: info.endLSN, changeCount: seen, in: &writer)
    let isSame = try TransactionPart(writer.bytes).info == info
    precondition(isSame, "a transaction came back as another")
}

private func walk(_ change: borrowing Change) {
    if let old = change.old { walk(old) }
    if let new = change.new { walk(new) }
}

private func walk(_ tuple: borrowing Tuple) {
    guard let cells = try? Cell.row(tuple) else { return }
    precondition(cells.count == tuple.columnCount, "a row image has another width than it says")
    do {
        let isBeyond = try tuple.value(at: cells.count) == nil
        precondition(isBeyond, "there is a column past the last one")
    } catch { preconditionFailure("a row image was read once and not twice") }
}

// MARK: Seeds

private func storedRelation() -> [UInt8] {
    var writer = ByteWriter()
    RelationCodec.encode(
        Relation(
            oid: 16_384, schema: "public", name: "orders", identity: .primaryKey,
            columns: [
                Column(name: "id", typeOID: 20, typeName: "int8", isIdentity: true, isPrimaryKey: true),
                Column(name: "état", typeOID: 25, typeName: "text", isIdentity: false, isPrimaryKey: false),
            ]), to: &writer)
    return writer.copied()
}

private func storedPart() -> [UInt8] {
    var writer = ByteWriter()
    TransactionCodec.begin(info, firstIndex: 0, to: &writer)
    let old = PgOutput.tuple([1, nil])
    let new = PgOutput.tuple([1, .unchanged])
    TransactionCodec.append(
        .update, relation: 7, oldImage: .full, old: old.span.bytes, new: new.span.bytes, to: &writer)
    TransactionCodec.append(
        .truncate, relation: 7, oldImage: .none, old: RawSpan(), new: RawSpan(), options: 3, to: &writer)
    TransactionCodec.finish(endLSN: LSN(130), changeCount: 2, in: &writer)
    return writer.copied()
}

private func storedEmptyPart() -> [UInt8] {
    var writer = ByteWriter()
    TransactionCodec.begin(info, firstIndex: 0, to: &writer)
    TransactionCodec.finish(endLSN: LSN(130), changeCount: 0, in: &writer)
    return writer.copied()
}

private let info = TransactionInfo(xid: 7, commitLSN: LSN(100), endLSN: .zero, commitTime: 0, origin: "elsewhere")
