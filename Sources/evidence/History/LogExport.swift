import Bytes
import Change
import EventLog

/// Lossless export of a log as lines of JSON. An import makes the same entries from them.
///
///     {"type":"header","format":"tidewire-log","version":1,"source":…,"epoch":…,"offset":…,"lsn":…}
///     {"type":"relation",…}       a schema, before the first change that has it
///     {"type":"transaction",…}    or a part of one; as many change lines as it says follow
///     {"type":"change",…}
///     {"type":"progress",…}       the database was idle up to there
///     {"type":"gap",…}            a new epoch
///     {"type":"entry",…}          anything else, in hexadecimal
///     {"type":"end","offset":…,"lines":…}
///
/// Values are PostgreSQL's text. NULL is null; {"unchanged":true} is a large value that was not sent; {"hex":…} are
/// bytes that are not text; {"binary":…} is a value in PostgreSQL's binary form.
public struct LogExport: ~Copyable {
    private var reader: EventLogReader
    /// End of the export; for a window with an end time, the end of the last transaction in the window.
    private let endOffset: UInt64
    /// Range of offsets to export, as known before the export runs.
    public let offsets: Range<UInt64>
    private let masking: Masking
    private var names: TableNames
    private var relations: [UInt64: ExportedRelation] = [:]
    private var line = ByteWriter(capacity: 4096)
    private var lines = 0
    private var nextOffset: UInt64 = 0
    private var isInside = false
    /// Notes about channels that had joined before the export begins, in masked form.
    private var openingNotes: [LedgerNote] = []
    /// True if catalog records are exported as they are, even if values are masked.
    private var includesPolicies = false
    private var openingRecord: CatalogRecord?

    /// Prepares an export of whole transactions: each transaction that the window touches is included. A window in time
    /// becomes the range from its first transaction to its last.
    public init(_ log: HistoryLog, from: HistoryBound?, to: HistoryBound?) throws {
        let window = try log.window(from: from, to: to)
        let endOffset = try Self.endOffset(log, window)
        let names = try TableNames(log)
        let segments = try log.segments()
        let reader = try EventLogReader(directory: log.directory, from: window.start)
        let first = max(window.firstOffset, segments[0].firstOffset)
        self.offsets = first..<max(first, min(endOffset, segments[segments.count - 1].endOffset))
        self.endOffset = endOffset
        self.reader = reader
        self.masking = log.masking
        self.names = names
    }

    private static func endOffset(_ log: HistoryLog, _ window: HistoryWindow) throws -> UInt64 {
        guard window.endTime != .max else { return window.endOffset }
        var end: UInt64 = 0
        var reader = try EventLogReader(directory: log.directory, from: window.start)
        while try reader.next(), reader.entry.segment <= window.lastSegment {
            if reader.entry.time < window.endTime {
                end = max(end, reader.entry.offset + UInt64(reader.entry.changeCount))
            }
        }
        return min(end, window.endOffset)
    }

    /// Sets the notes about channels that are joined where the export begins.
    mutating func begin(with notes: [LedgerNote]) { openingNotes = notes }

    /// Includes catalog records as they are, preceded by the record that is valid where the export begins.
    mutating func includePolicies(beginningWith record: CatalogRecord?) {
        includesPolicies = true
        openingRecord = record
    }

    /// Passes each line, with its line break, to `write`. Passes the offset reached after each entry to `noting`.
    public mutating func run(
        _ write: (RawSpan) throws -> Void, noting: (UInt64) -> Void = { _ in }
    ) throws {
        while try reader.next() {
            let entry = reader.entry
            if !isInside, !entry.precedesStart, entry.offset >= endOffset, entry.kind != .relation { break }
            if entry.kind == .relation {
                try learn()
                continue
            }
            if lines == 0 { try writeHeader(write) }
            try writeEntry(entry, write)
            isInside = entry.isContinued
            nextOffset = entry.offset + UInt64(entry.changeCount)
            noting(nextOffset)
        }
        if lines == 0 { try writeHeader(write) }
        line.append("{\"type\":\"end\",\"offset\":")
        line.append(decimal: nextOffset)
        line.append(",\"lines\":")
        line.append(decimal: UInt64(lines + 1))
        line.append("}")
        try flush(write)
    }

    private mutating func flush(_ write: (RawSpan) throws -> Void) throws {
        line.append("\n")
        lines += 1
        try write(line.bytes)
        line.removeAll()
        line.shrink(to: 4 << 20)
    }

    private mutating func learn() throws {
        let fingerprint = RelationCodec.fingerprint(of: reader.payload)
        guard relations[fingerprint] == nil else { return }
        guard let relation = try? RelationCodec.decode(reader.payload) else { return }
        names.note(relation)
        let masks = MaskedRelation(relation, masking, alsoCalled: names[relation])
        relations[fingerprint] = ExportedRelation(relation: relation, masks: masking.isNothing ? nil : masks)
    }

    private mutating func writeHeader(_ write: (RawSpan) throws -> Void) throws {
        let header = reader.segmentHeader
        nextOffset = reader.entry.offset
        line.append("{\"type\":\"header\",\"format\":\"tidewire-log\",\"version\":1,\"source\":\"")
        line.append(decimal: header.source)
        line.append("\",\"epoch\":")
        // If the export begins with a gap, the epoch before the gap is not in the export. The header then has zero.
        line.append(quoted: Hex.text(reader.entry.kind == .gap ? 0 : header.epoch))
        line.append(",\"offset\":")
        line.append(decimal: reader.entry.offset)
        line.append(",\"lsn\":")
        line.append(quoted: LSN(header.baseLSN).description)
        line.append("}")
        try flush(write)
        for start in stride(from: 0, to: openingNotes.count, by: Self.notesTogether) {
            let notes = openingNotes[start..<min(start + Self.notesTogether, openingNotes.count)]
            try writeOpening(.ledger, notes, LSN(header.baseLSN), write)
        }
        if let openingRecord { try writeOpening(.catalogRecord, [openingRecord], LSN(header.baseLSN), write) }
    }

    private static let notesTogether = 500

    private mutating func writeOpening<Note: LogNote>(
        _ kind: EntryKind, _ notes: some Collection<Note>, _ lsn: LSN, _ write: (RawSpan) throws -> Void
    ) throws {
        var payload = ByteWriter(capacity: 4096)
        Note.encode(notes, to: &payload)
        line.append("{\"type\":\"entry\",\"offset\":")
        line.append(decimal: reader.entry.offset)
        line.append(",\"kind\":")
        line.append(decimal: UInt64(kind.rawValue))
        line.append(",\"changes\":0,\"continued\":false,\"lsn\":")
        line.append(quoted: lsn.description)
        line.append(",\"time\":")
        line.append(quoted: TimeText.json(reader.entry.time))
        line.append(",\"payload\":\"")
        Hex.append(payload.bytes, to: &line)
        line.append("\"}")
        try flush(write)
    }

    private mutating func writeEntry(_ entry: EventLogEntry, _ write: (RawSpan) throws -> Void) throws {
        switch entry.kind {
        case .transaction where PartCheck.isPlain(reader.payload, entry, relations): try writePart(entry, write)
        case .progress where reader.payload.byteCount == 0:
            line.append("{\"type\":\"progress\"")
            appendPlace(entry)
            line.append("}")
            try flush(write)
        case .gap: try writeGap(entry, write)
        default: try writeOther(entry, write)
        }
    }

    private mutating func writeGap(_ entry: EventLogEntry, _ write: (RawSpan) throws -> Void) throws {
        let gap: Gap
        do throws(ByteError) { gap = try GapCodec.decode(reader.payload) } catch {
            throw UnreadableEntry(offset: entry.offset, segment: entry.segment, reason: error.description)
        }
        line.append("{\"type\":\"gap\",\"offset\":")
        line.append(decimal: entry.offset)
        line.append(",\"epoch\":")
        line.append(quoted: Hex.text(entry.epoch))
        line.append(",\"source\":\"")
        line.append(decimal: reader.segmentHeader.source)
        line.append("\",\"reason\":")
        line.append(quoted: gap.reason.rawValue)
        line.append(",\"from\":")
        line.append(quoted: gap.from.description)
        line.append(",\"to\":")
        line.append(quoted: gap.to.description)
        appendPlace(entry)
        line.append("}")
        try flush(write)
    }

    /// Writes an entry in hexadecimal, because this version does not know it or could not rebuild it from values.
    private mutating func writeOther(_ entry: EventLogEntry, _ write: (RawSpan) throws -> Void) throws {
        guard let payload = try shownPayload(entry) else { return }
        line.append("{\"type\":\"entry\",\"offset\":")
        line.append(decimal: entry.offset)
        line.append(",\"kind\":")
        line.append(decimal: UInt64(entry.kind.rawValue))
        line.append(",\"changes\":")
        line.append(decimal: UInt64(entry.changeCount))
        line.append(entry.isContinued ? ",\"continued\":true" : ",\"continued\":false")
        appendPlace(entry)
        line.append(",\"payload\":\"")
        Hex.append(payload.rawBytes, to: &line)
        line.append("\"}")
        try flush(write)
    }

    /// Returns the payload in masked form: presence, claims, filters and kept rows are masked. Returns nil for a kind
    /// of entry that cannot be masked; the export leaves it out.
    private func shownPayload(_ entry: EventLogEntry) throws -> [UInt8]? {
        let payload = reader.payload.copied()
        // Operators write their marks for everyone who reads the log.
        if masking.isNothing || [.catalogMark, .operatorMark].contains(entry.kind) { return payload }
        if includesPolicies, entry.kind == .catalogRecord { return payload }
        guard entry.changeCount == 0 else {
            throw UnreadableEntry(offset: entry.offset, segment: entry.segment, reason: "its values cannot be masked")
        }
        var shown = ByteWriter(capacity: payload.count)
        do throws(ByteError) {
            switch entry.kind {
            case .ledger:
                let notes = try LedgerCodec.decode(payload.rawBytes)
                LedgerCodec.encode(notes.map { $0.masked(by: masking) }, to: &shown)
            case .presence:
                let marks = try PresenceCodec.decode(payload.rawBytes)
                PresenceCodec.encode(marks.map { $0.masked(by: masking) }, to: &shown)
            case .keptRows:
                let notes = try KeptRowsCodec.decode(payload.rawBytes)
                KeptRowsCodec.encode(try notes.map { (note) throws(ByteError) in try masked(note) }, to: &shown)
            default: return nil
            }
        } catch {
            throw UnreadableEntry(offset: entry.offset, segment: entry.segment, reason: error.description)
        }
        return shown.bytes.copied()
    }

    private func masked(_ note: KeptRows) throws(ByteError) -> KeptRows {
        let relation = try RelationCodec.decode(note.schema.rawBytes)
        return try note.masked(by: MaskedRelation(relation, masking, alsoCalled: names[relation]))
    }

    /// Appends the LSN and time of the entry itself.
    private mutating func appendPlace(_ entry: EventLogEntry) {
        line.append(",\"lsn\":")
        line.append(quoted: LSN(entry.lsn).description)
        line.append(",\"time\":")
        line.append(quoted: TimeText.json(entry.time))
    }

    // MARK: Transactions

    private mutating func writePart(_ entry: EventLogEntry, _ write: (RawSpan) throws -> Void) throws {
        let used = try usedRelations()
        for fingerprint in used { try writeRelation(fingerprint, write) }
        let head = try TransactionHead(reader)
        line.append("{\"type\":\"transaction\",\"offset\":")
        line.append(decimal: entry.offset)
        line.append(",\"changes\":")
        line.append(decimal: UInt64(entry.changeCount))
        line.append(",\"xid\":")
        line.append(decimal: UInt64(head.info.xid))
        line.append(",\"commit_lsn\":")
        line.append(quoted: head.info.commitLSN.description)
        line.append(",\"end_lsn\":")
        line.append(quoted: head.info.endLSN.description)
        line.append(",\"commit_time\":")
        line.append(quoted: TimeText.json(head.info.commitTime))
        if !head.info.origin.isEmpty {
            line.append(",\"origin\":")
            line.append(quoted: head.info.origin)
        }
        line.append(",\"first_index\":")
        line.append(decimal: UInt64(head.firstIndex))
        line.append(entry.isContinued ? ",\"continued\":true" : ",\"continued\":false")
        appendPlace(entry)
        line.append("}")
        try flush(write)
        // Taken out of `self`: the line changes while the reader lends the payload. Parts may be too large to copy.
        var line = ByteWriter(capacity: 16)
        swap(&line, &self.line)
        defer { swap(&line, &self.line) }
        let written = try Self.writeChanges(
            of: reader.payload, from: entry.offset, relations, masking, to: &line, write)
        lines += written
    }

    private static func writeChanges(
        of payload: RawSpan, from first: UInt64, _ relations: [UInt64: ExportedRelation], _ masking: Masking,
        to line: inout ByteWriter, _ write: (RawSpan) throws -> Void
    ) throws -> Int {
        var part = try TransactionPart(payload)
        var count = 0
        while let change = try part.next() {
            try appendChange(change, first + UInt64(count), relations[change.relation], masking, to: &line)
            line.append("\n")
            count += 1
            try write(line.bytes)
            line.removeAll()
            line.shrink(to: 4 << 20)
        }
        return count
    }

    /// Returns the relations of this part that are not written yet, in the order of their first use.
    private func usedRelations() throws -> [UInt64] {
        var used: [UInt64] = []
        var part = try TransactionPart(reader.payload)
        while let change = try part.next() {
            if change.operation == .message || used.last == change.relation || used.contains(change.relation) {
                continue
            }
            if relations[change.relation]?.isWritten == false { used.append(change.relation) }
        }
        return used
    }

    private mutating func writeRelation(_ fingerprint: UInt64, _ write: (RawSpan) throws -> Void) throws {
        guard let relation = relations[fingerprint]?.relation else { return }
        relations[fingerprint]?.isWritten = true
        line.append("{\"type\":\"relation\",\"relation\":")
        line.append(quoted: Hex.text(fingerprint))
        line.append(",\"oid\":")
        line.append(decimal: UInt64(relation.oid))
        line.append(",\"schema\":")
        line.append(quoted: relation.schema)
        line.append(",\"table\":")
        line.append(quoted: relation.name)
        line.append(",\"replica_identity\":")
        line.append(quoted: String(UnicodeScalar(relation.identity.rawValue)))
        line.append(",\"columns\":[")
        for (index, column) in relation.columns.enumerated() {
            line.append(index == 0 ? "{\"name\":" : ",{\"name\":")
            line.append(quoted: column.name)
            line.append(",\"type\":")
            line.append(quoted: column.typeName)
            line.append(",\"type_oid\":")
            line.append(decimal: UInt64(column.typeOID))
            line.append(",\"type_modifier\":")
            line.append(decimal: Int64(column.typeModifier))
            line.append(column.isIdentity ? ",\"identity\":true" : ",\"identity\":false")
            line.append(column.isPrimaryKey ? ",\"primary_key\":true}" : ",\"primary_key\":false}")
        }
        line.append("]}")
        try flush(write)
    }
}

/// A relation with the export's masks and state for it.
struct ExportedRelation {
    let relation: Relation
    /// Masks of the relation's columns; nil if nothing is masked.
    let masks: MaskedRelation?
    var isWritten = false
}

/// Check that a part can be written as values and rebuilt from them, byte for byte.
enum PartCheck {
    static func isPlain(_ payload: RawSpan, _ entry: EventLogEntry, _ relations: [UInt64: ExportedRelation]) -> Bool {
        // The second byte has the flags. This version knows one of them.
        guard payload.byteCount > 1, payload.byte(1) & ~1 == 0, var part = try? TransactionPart(payload),
            part.changeCount == entry.changeCount, isText(part.info.origin)
        else { return false }
        do {
            while let change = try part.next() {
                guard try isPlain(change, relations) else { return false }
            }
            return true
        } catch {
            return false
        }
    }

    /// False for an origin with the replacement character, which may stand for other bytes.
    private static func isText(_ origin: String) -> Bool { !origin.unicodeScalars.contains("\u{fffd}") }

    private static func isPlain(_ change: borrowing Change, _ relations: [UInt64: ExportedRelation]) throws -> Bool {
        if change.operation == .message { return change.relation == 0 && change.oldImage == .none }
        guard let relation = relations[change.relation] else { return false }
        let width = relation.relation.columns.count
        guard Set(relation.relation.columns.map(\.name)).count == width else { return false }
        // A forgotten image is longer than its content, and the export has only the content.
        if let old = change.old, try !isWhole(old, width, change.isForgotten) { return false }
        if let new = change.new, try !isWhole(new, width, change.isForgotten) { return false }
        return true
    }

    private static func isWhole(_ tuple: borrowing Tuple, _ width: Int, _ isForgotten: Bool) throws -> Bool {
        guard tuple.columnCount == width else { return false }
        var columns = tuple.columns()
        while try columns.next() != nil {}
        return isForgotten || columns.offset == tuple.bytes.byteCount
    }
}

private func appendChange(
    _ change: borrowing Change, _ offset: UInt64, _ relation: ExportedRelation?, _ masking: Masking,
    to line: inout ByteWriter
) throws {
    line.append("{\"type\":\"change\",\"offset\":")
    line.append(decimal: offset)
    line.append(",\"op\":\"")
    line.append(change.operation.name)
    line.append("\"")
    if change.options != 0 {
        line.append(",\"options\":")
        line.append(decimal: UInt64(change.options))
    }
    if change.operation == .message {
        line.append(",\"prefix\":")
        appendText(change.messagePrefix, to: &line)
        line.append(",\"content\":")
        let prefix = change.messagePrefix.text
        let content = masking.shown(content: change.messageContent.copied(), prefix: prefix)
        appendText(content.rawBytes, to: &line)
    } else if let relation {
        line.append(",\"relation\":")
        line.append(quoted: Hex.text(change.relation))
        if let old = change.old {
            line.append(
                change.oldImage == .key ? ",\"old_image\":\"key\",\"old\":" : ",\"old_image\":\"full\",\"old\":")
            try appendRow(old, relation, to: &line)
        }
        if let new = change.new {
            line.append(",\"new\":")
            try appendRow(new, relation, to: &line)
        }
        if change.isForgotten { appendMarks(change, to: &line) }
    }
    line.append("}")
}

/// Appends the rest of each forgotten image: the day of the removal, and the part of the key's hash that is left.
private func appendMarks(_ change: borrowing Change, to line: inout ByteWriter) {
    let marks = change.forgottenMarks
    line.append(",\"forgotten\":{\"on\":")
    line.append(quoted: ForgottenChange(change).date ?? "")
    for (name, mark) in [("old", marks.old), ("new", marks.new)] {
        guard let mark else { continue }
        line.append(",")
        line.append(quoted: name)
        line.append(":\"")
        Hex.append(mark.key.rawBytes, to: &line)
        line.append("\"")
    }
    line.append("}")
}

private func appendRow(_ row: borrowing Tuple, _ relation: ExportedRelation, to line: inout ByteWriter) throws {
    line.append("{")
    var columns = row.columns()
    var index = 0
    while let value = try columns.next() {
        if index > 0 { line.append(",") }
        line.append(quoted: relation.relation.columns[index].name)
        line.append(":")
        appendValue(value, at: index, relation.masks, to: &line)
        index += 1
    }
    line.append("}")
}

private func appendValue(
    _ value: borrowing ColumnValue, at column: Int, _ masks: MaskedRelation?, to line: inout ByteWriter
) {
    if let masks, masks.mayHide(value, at: column) {
        switch masks.shown(RowValue(value), at: column) {
        case .masked(let tag): return line.append(quoted: MaskMark.text(tag))
        case .text(let bytes): return appendText(bytes.rawBytes, to: &line)
        case .null, .unchanged, .binary: break
        }
    }
    switch copy value {
    case .null: line.append("null")
    case .unchanged: line.append("{\"unchanged\":true}")
    case .text(let text): appendText(text, to: &line)
    case .binary(let bytes):
        line.append("{\"binary\":\"")
        Hex.append(bytes, to: &line)
        line.append("\"}")
    }
}

private func appendText(_ bytes: RawSpan, to line: inout ByteWriter) {
    if isUTF8(bytes) { return JSONText.appendString(bytes, to: &line) }
    line.append("{\"hex\":\"")
    Hex.append(bytes, to: &line)
    line.append("\"}")
}

private func isUTF8(_ bytes: RawSpan) -> Bool {
    (try? UTF8Span(validating: Span<UInt8>(_bytes: bytes))) != nil
}

extension ByteWriter {
    fileprivate mutating func append(quoted text: String) { JSONText.appendString(text, to: &self) }
}
