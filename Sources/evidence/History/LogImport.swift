import Bytes
import Change
import Diagnostics
import EventLog
import Synchronization
import System

/// Refusal of a line of an export.
public struct ImportRefusal: Error, Sendable, CustomStringConvertible {
    /// Number of the line, counted from one.
    public let line: Int
    public let reason: String

    public var description: String { "line \(line): \(reason)" }
}

/// Import of an export's lines, which makes a log in an empty directory.
///
/// The log has the offsets, positions, epochs, times and payloads of the export. The import cuts segments anew and
/// seals all of them at the end. In a live log, a later flush confirms that entries are complete; here the sizes of the
/// segments do. So a flipped bit counts as damage, and never as the torn tail of a crash.
public final class LogImport {
    private struct OpenPart {
        var offset: UInt64
        var end: LSN
        var place: EntryPlace
        var changes: UInt32
        var left: UInt32
        var relations: [UInt64] = []
        var keys: [UInt64] = []
    }

    private let directory: any StorageDirectory
    private let segmentBytes: UInt64
    private let epoch = NextEpoch()
    private var writer: EventLogWriter?
    private var relations: [UInt64: ImportedRelation] = [:]
    private var written: Set<UInt64> = []
    private var writtenIn: UInt64 = 0
    private var part: OpenPart?
    /// Number of the line that completed the part. The import appends the part when it reads the next line.
    private var partEnd = 0
    private var payload = ByteWriter(capacity: 64 << 10)
    private var isEnded = false
    private var finalOffset: UInt64 = 0
    private var order = ImportOrder()
    public private(set) var lines = 0

    public init(into directory: any StorageDirectory, segmentBytes: UInt64) {
        self.directory = directory
        self.segmentBytes = segmentBytes
    }

    /// Current end of the imported log.
    public var endOffset: UInt64 { writer?.nextOffset ?? finalOffset }

    /// Imports one line without its line break.
    public func take(_ line: RawSpan) throws {
        try appendWholePart()
        lines += 1
        do {
            guard !isEnded else { throw Refused("nothing comes after the end") }
            var scanner = JSONScanner(line)
            let type = try LogImport.type(&scanner)
            if type == "change" { return try change(&scanner) }
            guard part == nil else { throw Refused("a change of the transaction before is missing") }
            if type == "relation" { return try relation(&scanner) }
            try flat(type, ImportFields(&scanner))
        } catch let error as Refused {
            throw ImportRefusal(line: lines, reason: error.reason)
        } catch let error as ByteError {
            throw ImportRefusal(line: lines, reason: error.description)
        }
    }

    /// Makes all of the log durable. Must be called after the last line.
    public func finish() throws {
        guard isEnded, let writer else {
            throw ImportRefusal(line: lines + 1, reason: "the export ends before its end line")
        }
        try writer.flush()
        if !writer.isAtSegmentStart {
            try writer.roll()
            try writer.flush()
        }
        finalOffset = writer.nextOffset
        self.writer = nil
    }

    @_lifetime(scanner: copy scanner)
    private static func type(_ scanner: inout JSONScanner) throws -> String {
        guard try scanner.next() == .beginObject, try scanner.next() == .name, scanner.equals("type"),
            try scanner.next() == .string
        else { throw Refused("expected an object that begins with its type") }
        return scanner.text
    }

    private func flat(_ type: String, _ fields: ImportFields) throws {
        switch type {
        case "header": try header(fields)
        case "transaction": try transaction(fields)
        case "progress":
            try append(.progress, fields.place(), payload: RawSpan())
        case "gap": try gap(fields)
        case "entry": try entry(fields)
        case "end": try end(fields)
        default: throw Refused("there is no type \"\(type.prefix(40))\" of lines")
        }
    }

    private func open() throws -> EventLogWriter {
        guard let writer else { throw Refused("the first line must be a header") }
        return writer
    }

    private func header(_ fields: ImportFields) throws {
        guard writer == nil else { throw Refused("a second header") }
        guard try fields.text("format") == "tidewire-log", try fields.number("version", UInt32.self) == 1 else {
            throw Refused("expected an export of the format tidewire-log, version 1")
        }
        var options = EventLogOptions(source: try fields.decimal("source"))
        options.segmentBytes = segmentBytes
        options.retentionAge = nil
        options.retentionBytes = nil
        options.preparesSegments = false
        options.keyScheme = RowKey.scheme
        options.firstOffset = try fields.number("offset")
        guard options.firstOffset <= Self.largestOffset else { throw Refused("an offset that no log comes to") }
        options.firstLSN = try fields.lsn("lsn").rawValue
        epoch.value = try fields.hex("epoch")
        let epoch = epoch
        options.newEpoch = { epoch.value }
        writer = try EventLogWriter(directory: directory, options: options)
    }

    private func end(_ fields: ImportFields) throws {
        let writer = try open()
        guard !writer.isInsideTransaction else { throw Refused("a transaction without its last part") }
        guard try fields.number("lines", UInt64.self) == UInt64(lines) else {
            throw Refused("lines are missing before it")
        }
        guard try fields.number("offset", UInt64.self) == writer.nextOffset else {
            throw Refused("changes are missing before it")
        }
        isEnded = true
    }

    // MARK: Entries

    private func append(
        _ kind: EntryKind, _ place: EntryPlace, changes: UInt32 = 0, payload: RawSpan, keys: [UInt64] = []
    ) throws {
        let writer = try open()
        guard place.lsn.rawValue >= writer.appendedLSN else { throw Refused("an LSN before that of the entry before") }
        guard kind == .transaction || (!writer.isInsideTransaction && changes == 0) else {
            throw Refused("a transaction without its last part")
        }
        guard writer.nextOffset <= Self.largestOffset - UInt64(changes) else {
            throw Refused("an offset that no log comes to")
        }
        guard payload.byteCount <= Limits.maximumEntryPayloadBytes else { throw Refused("an entry that is too large") }
        try writer.append(
            kind: kind, continued: place.isContinued, changeCount: changes, lsn: place.lsn.rawValue, time: place.time,
            payload: payload, keys: keys.span)
    }

    private static let largestOffset = UInt64(Int64.max)

    private func gap(_ fields: ImportFields) throws {
        let writer = try open()
        guard !writer.isInsideTransaction else { throw Refused("a transaction without its last part") }
        guard let reason = Gap.Reason(rawValue: try fields.text("reason")) else { throw Refused("an unknown reason") }
        try requireOffset(try fields.number("offset"))
        epoch.value = try fields.hex("epoch")
        guard epoch.value != writer.epoch else { throw Refused("a gap that begins no new epoch") }
        var payload = ByteWriter()
        GapCodec.encode(Gap(reason: reason, from: try fields.lsn("from"), to: try fields.lsn("to")), to: &payload)
        let place = try fields.place()
        order.beginEpoch()
        try writer.beginEpoch(
            source: try fields.decimal("source"), lsn: place.lsn.rawValue, time: place.time, payload: payload.bytes)
    }

    private func entry(_ fields: ImportFields) throws {
        let kind = EntryKind(rawValue: try fields.number("kind"))
        guard kind.rawValue != 0, kind != .gap, kind != .relation else {
            throw Refused("a kind that has lines of its own")
        }
        try requireOffset(try fields.number("offset"))
        guard let bytes = HexText.decode(try fields.text("payload")) else {
            throw Refused("expected hexadecimal digits")
        }
        let (place, changes): (EntryPlace, UInt32) = (try fields.place(), try fields.number("changes"))
        if kind == .transaction {
            try follow(bytes.rawBytes, changes: changes, place)
            try open().giveUpKeys()
        }
        let keys: [UInt64]? =
            switch kind {
            case .ledger: LedgerCodec.keys(of: bytes.rawBytes)
            case .catalogRecord, .catalogMark: [RowKey.catalog]
            case .operatorMark: [RowKey.marks]
            case .keptRows: KeptRowsCodec.keys(of: bytes.rawBytes)
            default: []
            }
        if keys == nil { try open().giveUpKeys() }
        try append(kind, place, changes: changes, payload: bytes.rawBytes, keys: keys ?? [])
    }

    private func follow(_ payload: RawSpan, changes: UInt32, _ place: EntryPlace) throws(Refused) {
        guard let part = try? TransactionPart(payload) else {
            return order.takeUnread(changes: changes, place)
        }
        try order.take(part.info, firstIndex: part.firstIndex, changes: changes, place)
    }

    private func requireOffset(_ offset: UInt64) throws {
        let next = try open().nextOffset
        guard offset == next else { throw Refused("expected offset \(next), found \(offset)") }
    }

    // MARK: Relations

    @_lifetime(scanner: copy scanner)
    private func relation(_ scanner: inout JSONScanner) throws {
        _ = try open()
        let imported = try ImportedRelation(&scanner)
        relations[imported.known.fingerprint] = imported
    }

    private func writeRelations(_ part: OpenPart, _ writer: EventLogWriter) throws {
        if writer.segmentSequence != writtenIn {
            written.removeAll()
            writtenIn = writer.segmentSequence
        }
        for fingerprint in part.relations where !written.contains(fingerprint) {
            guard let relation = relations[fingerprint] else { continue }
            try writer.append(
                kind: .relation, continued: writer.isInsideTransaction, lsn: writer.appendedLSN, time: part.place.time,
                payload: relation.encoded.rawBytes)
            written.insert(fingerprint)
        }
    }

    // MARK: Transactions

    private func transaction(_ fields: ImportFields) throws {
        try requireOffset(try fields.number("offset"))
        let info = TransactionInfo(
            xid: try fields.number("xid"), commitLSN: try fields.lsn("commit_lsn"), endLSN: try fields.lsn("end_lsn"),
            commitTime: try fields.time("commit_time"), origin: try fields.text(optional: "origin") ?? "")
        let (changes, firstIndex): (UInt32, UInt32) = (try fields.number("changes"), try fields.number("first_index"))
        let place = try fields.place()
        try order.take(info, firstIndex: firstIndex, changes: changes, place)
        payload.removeAll()
        payload.shrink(to: 4 << 20)
        TransactionCodec.begin(info, firstIndex: firstIndex, to: &payload)
        part = OpenPart(
            offset: try fields.number("offset"), end: info.endLSN, place: place, changes: changes, left: changes,
            keys: [RowKey.transaction(xid: info.xid)])
        partEnd = lines
    }

    @_lifetime(scanner: copy scanner)
    private func change(_ scanner: inout JSONScanner) throws {
        guard var open = part else { throw Refused("a change outside of a transaction") }
        let offset = open.offset + UInt64(open.changes - open.left)
        // Taken out of the properties, so that the part is not copied while it grows. Properties of an object cannot be
        // lent.
        part = nil
        var payload = ByteWriter(capacity: 16)
        swap(&payload, &self.payload)
        defer { swap(&payload, &self.payload) }
        let start = payload.count
        TransactionCodec.beginChange(in: &payload)
        var change = ImportedChange(offset: offset)
        try change.read(&scanner, relations, into: &payload)
        try change.check()
        if let relation = change.relation {
            if !open.relations.contains(relation.known.fingerprint) {
                open.relations.append(relation.known.fingerprint)
            }
            open.keys += change.keys(payload.bytes, relation)
        }
        change.finish(from: start, in: &payload)
        if change.isForgotten { TransactionCodec.noteForgotten(in: &payload) }
        open.left -= 1
        part = open
        partEnd = lines
    }

    /// Appends a complete part. The import calls this only with the next line, when a large line is no longer in
    /// memory.
    private func appendWholePart() throws {
        guard let part, part.left == 0 else { return }
        do {
            try append(part)
        } catch let error as Refused {
            throw ImportRefusal(line: partEnd, reason: error.reason)
        }
    }

    private func append(_ part: OpenPart) throws {
        let writer = try open()
        self.part = nil
        // Taken out of the object for the call, because properties of an object cannot be lent.
        var finished = ByteWriter(capacity: 16)
        swap(&finished, &payload)
        defer { swap(&finished, &payload) }
        TransactionCodec.finish(endLSN: part.end, changeCount: part.changes, in: &finished)
        if !writer.isInsideTransaction { try writer.rollIfNeeded(adding: finished.count) }
        try writeRelations(part, writer)
        try append(
            .transaction, part.place, changes: part.changes, payload: finished.bytes, keys: Array(Set(part.keys)))
    }
}

/// Error that refuses the current line of an import.
struct Refused: Error {
    let reason: String

    init(_ reason: String) { self.reason = reason }
}

/// Epoch that the writer begins next.
private final class NextEpoch: Sendable {
    private let next = Mutex<UInt64>(0)

    var value: UInt64 {
        get { next.withLock { $0 } }
        set { next.withLock { $0 = newValue } }
    }
}

/// Fields of an export's line that every entry has.
struct EntryPlace {
    var lsn: LSN
    var time: Int64
    var isContinued: Bool
}

enum HexText {
    static func decode(_ text: String) -> [UInt8]? {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(text.utf8.count / 2)
        var high: UInt8?
        for digit in text.utf8 {
            guard let value = Hex.value(digit) else { return nil }
            if let first = high {
                bytes.append(first << 4 | value)
                high = nil
            } else {
                high = value
            }
        }
        return high == nil ? bytes : nil
    }
}

/// The members of a line that has no object or array in it.
struct ImportFields {
    private var texts: [String: String] = [:]
    private var numbers: [String: String] = [:]
    private var flags: [String: Bool] = [:]

    /// Reads the rest of the line after its type.
    @_lifetime(scanner: copy scanner)
    init(_ scanner: inout JSONScanner) throws {
        while true {
            switch try scanner.next() {
            case .name: try member(scanner.text, &scanner)
            case .endObject: break
            case .end: return
            default: throw Refused("expected one object")
            }
        }
    }

    @_lifetime(scanner: copy scanner)
    private mutating func member(_ name: String, _ scanner: inout JSONScanner) throws {
        switch try scanner.next() {
        case .string: texts[name] = scanner.text
        case .number: numbers[name] = scanner.tokenBytes.text
        case .bool(let flag): flags[name] = flag
        default: throw Refused("\(name) is neither a text, a number nor a flag")
        }
    }

    func text(_ name: String) throws -> String {
        guard let text = texts[name] else { throw Refused("\(name) is missing") }
        return text
    }

    func text(optional name: String) throws -> String? { texts[name] }

    func number<Number: FixedWidthInteger>(_ name: String, _ type: Number.Type = Number.self) throws -> Number {
        guard let text = numbers[name], let number = Number(text) else {
            throw Refused("\(name) is missing, or no number in its range")
        }
        return number
    }

    func flag(_ name: String) -> Bool { flags[name] ?? false }

    func lsn(_ name: String) throws -> LSN {
        guard let lsn = LSN(try text(name)) else { throw Refused("\(name) is no LSN") }
        return lsn
    }

    func time(_ name: String) throws -> Int64 {
        guard let time = TimeText.parse(try text(name)) else { throw Refused("\(name) is no time") }
        return time
    }

    /// Returns a number of 64 bits from a text. Numbers of JavaScript cannot hold 64 bits, so exports contain texts.
    func hex(_ name: String) throws -> UInt64 {
        guard let number = UInt64(try text(name), radix: 16) else { throw Refused("\(name) is no hexadecimal number") }
        return number
    }

    func decimal(_ name: String) throws -> UInt64 {
        guard let number = UInt64(try text(name)) else { throw Refused("\(name) is no number") }
        return number
    }

    func place() throws -> EntryPlace {
        EntryPlace(lsn: try lsn("lsn"), time: try time("time"), isContinued: flag("continued"))
    }
}
