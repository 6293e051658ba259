import Bytes

/// Rows of a table that the hub read from the database, because the log has no changes of them.
///
/// Every change that was committed before the reading is before these rows in the log.
public struct KeptRows: Sendable, Equatable {
    public struct Row: Sendable, Equatable {
        /// Row image in the form that `Tuple` reads.
        public var image: [UInt8]
        /// True if the row's values were removed from the log.
        public var isForgotten: Bool

        public init(image: [UInt8], isForgotten: Bool = false) {
            self.image = image
            self.isForgotten = isForgotten
        }
    }

    /// Number of the reading that these rows belong to. It is needed because parts of two readings may have the same
    /// WAL position.
    public var reading: UInt64
    /// Position of PostgreSQL's WAL when the rows were read.
    public var lsn: LSN
    /// Time when the rows were read, in microseconds since 1970, UTC.
    public var time: Int64
    /// Number of this part, from zero. The rows of one reading are stored in parts; `isLast` marks the last one.
    public var part: UInt32
    public var isLast: Bool
    /// Schema of the rows, encoded by `RelationCodec`.
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

/// Stored form of kept rows, several notes in one entry:
///
/// ```
/// entry = version u8 · number of notes u32 · note*
/// note  = reading u64 · lsn u64 · time i64 · part u32 · flags u8 (bit 0: the last part) · length u32 · schema
///          · number of rows u32 · row*
/// row   = flags u8 (bit 0: forgotten) · length u32 · image
/// ```
public enum KeptRowsCodec {
    private static let version: UInt8 = 1
    static let fixedBytes = 37
    /// Length of the flags and the length field before an image.
    public static let rowHeadBytes = 5
    /// Flag of a forgotten row.
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

    /// Calls `begin` with each note without its rows, then `row` with each of its rows: whether the row is forgotten,
    /// its image, and the image's offset.
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

    /// Returns the keys by which readers find the entry; nil if the entry is malformed.
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
        guard let relation = try? RelationCodec.decode(schema.rawBytes) else { return [RowKey.kept] }
        return [RowKey.kept, RowKey.kept(table: RowKey.table(schema: relation.schema, name: relation.name))]
    }
}
