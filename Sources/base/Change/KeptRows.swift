import Bytes

/// Rows of a table as somebody read them from the database: for those of which the log has no change.
///
/// Every change that was committed when they were read is in the log before them.
public struct KeptRows: Sendable, Equatable {
    public struct Row: Sendable, Equatable {
        /// As `Tuple` reads it.
        public var image: [UInt8]
        /// Its values were removed from the log.
        public var isForgotten: Bool

        public init(image: [UInt8], isForgotten: Bool = false) {
            self.image = image
            self.isForgotten = isForgotten
        }
    }

    /// A number of their reading's own: of two there may be parts at the same place of PostgreSQL's log.
    public var reading: UInt64
    /// Where PostgreSQL's log was when they were read.
    public var lsn: LSN
    /// When that was, in microseconds since 1970, UTC.
    public var time: Int64
    /// The rows of a table come in parts, numbered from zero, of which the last says that it is.
    public var part: UInt32
    public var isLast: Bool
    /// The schema that they have, as `RelationCodec` writes it.
    public var schema: [UInt8]
    public var rows: [Row]

    public init(
        reading: UInt64, lsn: LSN, time: Int64, part: UInt32, isLast: Bool, schema: [UInt8], rows: [Row]
    ) {
        self.reading = reading
        (self.lsn, self.time, self.part, self.isLast) = (lsn, time, part, isLast)
        (self.schema, self.rows) = (schema, rows)
    }
}

extension KeptRows: LogNote {
    public var byteCount: Int {
        KeptRowsCodec.fixedBytes + schema.count
            + rows.reduce(0) { $0 + KeptRowsCodec.rowHeadBytes + $1.image.count }
    }

    public var isStorable: Bool { byteCount <= Int(Int32.max) }
    public var keys: [UInt64] { KeptRowsCodec.keys(ofSchema: schema) }

    public static func encode(_ notes: some Collection<KeptRows>, to writer: inout ByteWriter) {
        KeptRowsCodec.encode(notes, to: &writer)
    }
}

/// The stored form, several in one entry:
///
/// ```
/// entry = version u8 · number of notes u32 · note*
/// note  = reading u64 · lsn u64 · time i64 · part u32 · flags u8 (bit 0: the last part) · length u32 · schema · number of rows u32 · row*
/// row   = flags u8 (bit 0: forgotten) · length u32 · image
/// ```
public enum KeptRowsCodec {
    private static let version: UInt8 = 1
    static let fixedBytes = 37
    /// Flags and length, which stand before an image.
    public static let rowHeadBytes = 5
    /// What stands in the flags of a row that is forgotten.
    public static let forgottenFlag: UInt8 = 1

    public static func encode(_ notes: some Collection<KeptRows>, to writer: inout ByteWriter) {
        writer.append(version)
        writer.append(little: UInt32(notes.count))
        for note in notes {
            precondition(note.isStorable, "kept rows have a largest size")
            writer.append(little: note.reading)
            writer.append(little: note.lsn.rawValue)
            writer.append(little: UInt64(bitPattern: note.time))
            writer.append(little: note.part)
            writer.append(UInt8(note.isLast ? 1 : 0))
            writer.append(little: UInt32(note.schema.count))
            writer.append(note.schema)
            writer.append(little: UInt32(note.rows.count))
            for row in note.rows {
                writer.append(row.isForgotten ? forgottenFlag : 0)
                writer.append(little: UInt32(row.image.count))
                writer.append(row.image)
            }
        }
    }

    public static func decode(_ bytes: RawSpan) throws(ByteError) -> [KeptRows] {
        var notes: [KeptRows] = []
        try visit(
            bytes,
            { (note) throws(ByteError) in notes.append(note) },
            { (isForgotten, image, _) throws(ByteError) in
                notes[notes.count - 1].rows.append(KeptRows.Row(image: image.copied(), isForgotten: isForgotten))
            })
        return notes
    }

    /// Each note without its rows, and behind it each of its rows: whether it is forgotten, its image, and where that begins.
    public static func visit(
        _ bytes: RawSpan, _ begin: (KeptRows) throws(ByteError) -> Void,
        _ row: (Bool, RawSpan, Int) throws(ByteError) -> Void
    ) throws(ByteError) {
        var reader = ByteReader(bytes)
        guard try reader.uint8() == version else { throw ByteError(expected: "kept rows of version 1", offset: 0) }
        for _ in 0..<(try reader.littleUInt32()) {
            let reading = try reader.littleUInt64()
            let (lsn, time) = (LSN(try reader.littleUInt64()), Int64(bitPattern: try reader.littleUInt64()))
            let (part, flags) = (try reader.littleUInt32(), try reader.uint8())
            let schema = try reader.span(Int(reader.littleUInt32())).copied()
            try begin(
                KeptRows(
                    reading: reading, lsn: lsn, time: time, part: part, isLast: flags & 1 != 0, schema: schema, rows: []
                ))
            for _ in 0..<(try reader.littleUInt32()) {
                let isForgotten = try reader.uint8() & forgottenFlag != 0
                let length = Int(try reader.littleUInt32())
                let start = reader.offset
                try row(isForgotten, try reader.span(length), start)
            }
        }
        try reader.expectEnd()
    }

    /// By what they are looked for; nil where they cannot be read.
    public static func keys(of bytes: RawSpan) -> [UInt64]? {
        var keys: Set<UInt64> = []
        do throws(ByteError) {
            try visit(
                bytes, { (note) throws(ByteError) in keys.formUnion(Self.keys(ofSchema: note.schema)) },
                { (_, _, _) throws(ByteError) in })
        } catch {
            return nil
        }
        return Array(keys)
    }

    static func keys(ofSchema schema: [UInt8]) -> [UInt64] {
        // SAFETY: any byte is a valid UInt8, and the array outlives the call.
        guard let relation = try? RelationCodec.decode(unsafe schema.span.bytes) else { return [RowKey.kept] }
        return [RowKey.kept, RowKey.kept(table: RowKey.table(schema: relation.schema, name: relation.name))]
    }
}
