import Bytes
import Change

/// Relation that was parsed from a line of an export.
struct ImportedRelation {
    let known: RecordedRelation
    let encoded: [UInt8]

    /// Reads the members that follow `type` in a relation line of an export.
    @_lifetime(scanner: copy scanner)
    init(_ scanner: inout JSONScanner) throws {
        var relation = Relation(oid: 0, schema: "", name: "", identity: .nothing, columns: [])
        var said: UInt64?
        loop: while true {
            switch try scanner.next() {
            case .name: try Self.member(scanner.text, &scanner, &relation, &said)
            case .endObject: break
            case .end: break loop
            default: throw Refused("expected one object")
            }
        }
        var writer = ByteWriter()
        RelationCodec.encode(relation, to: &writer)
        encoded = writer.bytes.copied()
        let fingerprint = RelationCodec.fingerprint(of: writer.bytes)
        guard said == fingerprint else { throw Refused("a relation that is not the one it says it is") }
        known = RecordedRelation(relation, fingerprint: fingerprint)
    }

    @_lifetime(scanner: copy scanner)
    private static func member(
        _ name: String, _ scanner: inout JSONScanner, _ relation: inout Relation, _ said: inout UInt64?
    ) throws {
        let token = try scanner.next()
        switch (name, token) {
        case ("relation", .string): said = UInt64(scanner.text, radix: 16)
        case ("oid", .number): relation.oid = try scanner.required(name)
        case ("schema", .string): relation.schema = try scanner.shortText(name)
        case ("table", .string): relation.name = try scanner.shortText(name)
        case ("replica_identity", .string):
            guard let byte = scanner.text.utf8.first, let identity = ReplicaIdentity(rawValue: byte) else {
                throw Refused("an unknown replica identity")
            }
            relation.identity = identity
        case ("columns", .beginArray): relation.columns = try columns(&scanner)
        default: throw Refused("\(name) does not belong here, or is of another type")
        }
    }

    @_lifetime(scanner: copy scanner)
    private static func columns(_ scanner: inout JSONScanner) throws -> [Column] {
        var columns: [Column] = []
        while true {
            switch try scanner.next() {
            case .beginObject: columns.append(try column(&scanner))
            case .endArray: return columns
            default: throw Refused("a column that is no object")
            }
            // PostgreSQL's own limit. A count must also fit two bytes.
            guard columns.count <= 1664 else { throw Refused("more columns than a table can have") }
        }
    }

    @_lifetime(scanner: copy scanner)
    private static func column(_ scanner: inout JSONScanner) throws -> Column {
        var column = Column(name: "", typeOID: 0, typeName: "", isIdentity: false, isPrimaryKey: false)
        while try scanner.next() == .name {
            let name = scanner.text
            let token = try scanner.next()
            switch (name, token) {
            case ("name", .string): column.name = try scanner.shortText(name)
            case ("type", .string): column.typeName = try scanner.shortText(name)
            case ("type_oid", .number): column.typeOID = try scanner.required(name)
            case ("type_modifier", .number): column.typeModifier = try scanner.required(name)
            case ("identity", .bool(let flag)): column.isIdentity = flag
            case ("primary_key", .bool(let flag)): column.isPrimaryKey = flag
            default: throw Refused("\(name) does not belong here, or is of another type")
            }
        }
        return column
    }
}

extension JSONScanner {
    fileprivate func required<Number: FixedWidthInteger>(_ name: String) throws -> Number {
        guard let number = integer(Number.self) else { throw Refused("\(name) is no number in its range") }
        return number
    }

    /// Returns the text that the scanner has just read; throws if its length does not fit two bytes.
    fileprivate func shortText(_ name: String) throws -> String {
        let text = text
        guard text.utf8.count <= Int(UInt16.max) else { throw Refused("\(name) is too long") }
        return text
    }
}

/// Change that was parsed from a line of an export. Its row images lie one after the other in the importer's buffer,
/// most of them already where the log's entry needs them.
struct ImportedChange {
    private let expectedOffset: UInt64
    private var offset: UInt64?
    private var operation: Operation?
    private var options: UInt8 = 0
    private var oldImage = OldImage.none
    private(set) var relation: ImportedRelation?
    private var old = 0..<0
    private var new = 0..<0
    private var members: Set<String> = []
    private var oldMark: ForgottenMark?
    private var newMark: ForgottenMark?

    var isForgotten: Bool { members.contains("forgotten") }

    init(offset: UInt64) { expectedOffset = offset }

    /// Reads the members that follow `type` in a change line of an export.
    @_lifetime(scanner: copy scanner)
    mutating func read(
        _ scanner: inout JSONScanner, _ relations: [UInt64: ImportedRelation], into buffer: inout ByteWriter
    ) throws {
        while true {
            switch try scanner.next() {
            case .name: try member(scanner.text, &scanner, relations, &buffer)
            case .endObject: break
            case .end: return
            default: throw Refused("expected one object")
            }
        }
    }

    @_lifetime(scanner: copy scanner)
    private mutating func member(
        _ name: String, _ scanner: inout JSONScanner, _ relations: [UInt64: ImportedRelation],
        _ buffer: inout ByteWriter
    ) throws {
        guard members.insert(name).inserted else { throw Refused("\(name) twice") }
        let token = try scanner.next()
        let start = buffer.count
        switch (name, token) {
        case ("offset", .number): offset = scanner.integer()
        case ("op", .string):
            let word = scanner.text
            operation = Operation.allCases.first { $0.name == word }
        case ("options", .number): options = try scanner.required(name)
        case ("relation", .string):
            guard let known = UInt64(scanner.text, radix: 16).flatMap({ relations[$0] }) else {
                throw Refused("a relation that no line before tells of")
            }
            relation = known
        case ("old_image", .string): oldImage = scanner.equals("key") ? .key : .full
        case ("old", .beginObject):
            try row(&scanner, &buffer)
            old = start..<buffer.count
        case ("new", .beginObject):
            try row(&scanner, &buffer)
            new = start..<buffer.count
        case ("forgotten", .beginObject): try marks(&scanner)
        case ("prefix", _):
            try text(token, &scanner, &buffer)
            old = start..<buffer.count
        case ("content", _):
            try text(token, &scanner, &buffer)
            new = start..<buffer.count
        default: throw Refused("\(name) does not belong here, or is of another type")
        }
    }

    func check() throws {
        guard offset == expectedOffset else { throw Refused("expected the change at offset \(expectedOffset)") }
        guard let operation else { throw Refused("op is missing or unknown") }
        guard (operation == .message) == (relation == nil) else {
            throw Refused("the relation is missing, or too much")
        }
        let hasOld = members.contains("old")
        let hasNew = members.contains("new")
        let isMessage = members.contains("prefix") && members.contains("content")
        let fits =
            switch operation {
            case .insert: hasNew && !hasOld
            case .update: hasNew
            case .delete: !hasNew
            case .truncate: !hasNew && !hasOld
            case .message: isMessage && !hasNew && !hasOld
            }
        guard !isForgotten || [.insert, .update, .delete].contains(operation), (oldMark == nil || hasOld),
            newMark == nil || hasNew
        else { throw Refused("what is forgotten is an image of a row") }
        guard fits, hasOld == (oldImage != .none), isMessage == (operation == .message) else {
            throw Refused("\(operation.name) with other images than it can have")
        }
    }

    /// Builds the change's stored form from its row images in the payload. Room for the head of the change is reserved
    /// at `start`, before the images.
    func finish(from start: Int, in payload: inout ByteWriter) {
        guard let operation else { preconditionFailure("a change is finished after its check") }
        let head = start + TransactionCodec.changeHeadBytes
        // A large value is not copied again.
        if !isForgotten, old.isEmpty || old.lowerBound == head, new.isEmpty || new.lowerBound == head + old.count {
            return TransactionCodec.endChange(
                operation, relation: relation?.known.fingerprint ?? 0, oldImage: oldImage, oldBytes: old.count,
                options: options, from: start, in: &payload)
        }
        let width = relation?.known.relation.columns.count ?? 0
        let was = oldMark?.image(columns: width) ?? payload.bytes.extracting(old).copied()
        let now = newMark?.image(columns: width) ?? payload.bytes.extracting(new).copied()
        payload.truncate(to: start)
        TransactionCodec.append(
            operation, relation: relation?.known.fingerprint ?? 0, oldImage: oldImage, old: was.rawBytes,
            new: now.rawBytes, options: options, isForgotten: isForgotten, to: &payload)
    }

    /// Reads the member `forgotten`: `{"on":"2026-11-26","old":"…","new":"…"}`.
    @_lifetime(scanner: copy scanner)
    private mutating func marks(_ scanner: inout JSONScanner) throws {
        var day: UInt16?
        while true {
            switch try scanner.next() {
            case .endObject: return
            case .name: break
            default: throw Refused("forgotten says on, old and new")
            }
            let name = scanner.text
            guard try scanner.next() == .string else { throw Refused("forgotten says on, old and new, as texts") }
            if name == "on" {
                day = try Self.day(scanner.text)
                continue
            }
            guard let day, let key = HexText.decode(scanner.text), (2...4).contains(key.count) else {
                throw Refused("forgotten says on first, and then what is left of keys")
            }
            switch name {
            case "old": oldMark = ForgottenMark(day: day, key: key)
            case "new": newMark = ForgottenMark(day: day, key: key)
            default: throw Refused("\(name) does not belong into forgotten")
            }
        }
    }

    private static func day(_ text: String) throws -> UInt16? {
        if text.isEmpty { return nil }
        guard let time = TimeText.parse(text + "T00:00:00Z"), let day = UInt16(exactly: time / 86_400_000_000) else {
            throw Refused("\(text) is no day")
        }
        return day
    }

    /// Returns the hashes of the row's keys by which segments are indexed. Ingest computes them in the same way.
    func keys(_ buffer: RawSpan, _ relation: ImportedRelation) -> [UInt64] {
        var keys = [relation.known.tableKey]
        if MessageTable.holds(relation.known.relation) { keys.append(MessageTable.key) }
        if old.isEmpty, new.isEmpty { keys.append(relation.known.unkeyed) }
        for image in [old, new] where !image.isEmpty {
            keys.append(relation.known.rowKey(inTuple: buffer.extracting(image)))
        }
        return keys
    }

    // MARK: Row images

    /// Reads the values of all columns in their order. Throws for another order or a missing column: no export has
    /// that, so the line was tampered with.
    @_lifetime(scanner: copy scanner)
    private func row(_ scanner: inout JSONScanner, _ buffer: inout ByteWriter) throws {
        guard let columns = relation?.known.relation.columns else { throw Refused("a row before its relation") }
        buffer.append(big: UInt16(columns.count))
        for column in columns {
            guard try scanner.next() == .name, scanner.text == column.name else {
                throw Refused("expected the column \(SQLName.quoted(column.name)) next")
            }
            try value(scanner.next(), &scanner, &buffer)
        }
        guard try scanner.next() == .endObject else { throw Refused("more columns than the relation has") }
    }

    @_lifetime(scanner: copy scanner)
    private func value(_ token: JSONToken, _ scanner: inout JSONScanner, _ buffer: inout ByteWriter) throws {
        switch token {
        case .null: buffer.append(UInt8(ascii: "n"))
        case .string: appendValue("t", &buffer) { scanner.appendText(to: &$0) }
        case .beginObject: try special(&scanner, &buffer)
        default: throw Refused("a value is a text, null or an object such as {\"unchanged\":true}")
        }
    }

    @_lifetime(scanner: copy scanner)
    private func special(_ scanner: inout JSONScanner, _ buffer: inout ByteWriter) throws {
        guard try scanner.next() == .name else { throw Refused("an empty object for a value") }
        let kind = scanner.text
        switch (kind, try scanner.next()) {
        case ("unchanged", .bool(true)): buffer.append(UInt8(ascii: "u"))
        case ("hex", .string), ("binary", .string):
            guard let bytes = HexText.decode(scanner.text) else { throw Refused("expected hexadecimal digits") }
            appendValue(kind == "hex" ? "t" : "b", &buffer) { $0.append(bytes) }
        default: throw Refused("a value is a text, null, or unchanged, hex or binary")
        }
        guard try scanner.next() == .endObject else { throw Refused("more than one kind of a value") }
    }

    private func appendValue(_ kind: Unicode.Scalar, _ buffer: inout ByteWriter, _ append: (inout ByteWriter) -> Void) {
        buffer.append(UInt8(ascii: kind))
        let place = buffer.count
        buffer.append(big: UInt32(0))
        append(&buffer)
        // Row images have PostgreSQL's byte order: big-endian.
        buffer.set(little: UInt32(truncatingIfNeeded: buffer.count - place - 4).byteSwapped, at: place)
    }

    /// Reads a message's prefix or content: a text, or bytes in hexadecimal.
    @_lifetime(scanner: copy scanner)
    private func text(_ token: JSONToken, _ scanner: inout JSONScanner, _ buffer: inout ByteWriter) throws {
        if token == .string { return scanner.appendText(to: &buffer) }
        guard token == .beginObject, try scanner.next() == .name, scanner.equals("hex"), try scanner.next() == .string,
            let bytes = HexText.decode(scanner.text), try scanner.next() == .endObject
        else { throw Refused("expected a text or {\"hex\":…}") }
        buffer.append(bytes)
    }
}

extension RecordedRelation {
    /// Returns the hash of the row's key. If the image lacks a part of the key, returns the hash for rows without a
    /// known key.
    func rowKey(inTuple image: RawSpan) -> UInt64 {
        guard !keyColumns.isEmpty else { return unkeyed }
        var hash = RowKey.row(table: tableKey)
        let tuple = Tuple(image)
        for column in keyColumns {
            guard let value = try? tuple.value(at: column), case .text(let text) = value else { return unkeyed }
            hash.combine(text)
        }
        return hash.value
    }
}
