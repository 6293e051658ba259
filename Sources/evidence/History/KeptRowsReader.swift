import Bytes
import Change
import EventLog

/// Reader of the log's notes with rows that the hub read from the database (a backfill). Returns one note at a time, in
/// the order of the log.
struct KeptRowsReader: ~Copyable {
    /// Position of a note in the log.
    struct Place {
        /// Offset of the next change after the note.
        var offset: UInt64
        var epoch: UInt64
    }

    private var reader: EventLogReader
    private var notes: ArraySlice<KeptRows> = []
    private var place = Place(offset: 0, epoch: 0)

    /// Opens a reader at the log's beginning.
    ///
    /// - Parameter tables: keys of the wanted tables. The reader may skip entries without any of them. Empty means all
    ///   tables.
    init(_ log: HistoryLog, of tables: [UInt64] = []) throws {
        let keys = tables.isEmpty ? [RowKey.kept] : tables.map { RowKey.kept(table: $0) }
        reader = try EventLogReader(directory: log.directory, from: .oldest, matchingAnyOf: keys)
    }

    mutating func next() throws -> (note: KeptRows, place: Place)? {
        while notes.isEmpty {
            guard try find() else { return nil }
            notes = try Self.read(reader) { (payload) throws(ByteError) in try KeptRowsCodec.decode(payload) }[...]
        }
        return (notes.removeFirst(), place)
    }

    private mutating func find() throws -> Bool {
        while try reader.next() {
            guard reader.entry.kind == .keptRows else { continue }
            place = Place(offset: reader.entry.offset, epoch: reader.entry.epoch)
            return true
        }
        return false
    }

    private static func read<Value>(
        _ reader: borrowing EventLogReader, _ body: (RawSpan) throws(ByteError) -> Value
    ) throws -> Value {
        do throws(ByteError) {
            return try body(reader.payload)
        } catch {
            throw UnreadableEntry(
                offset: reader.entry.offset, segment: reader.entry.segment, reason: error.description)
        }
    }

    /// Calls `body` once for each note, with the schema of its rows and the epoch in which they were read.
    static func visitSchemas(_ log: HistoryLog, _ body: ([UInt8], UInt64) -> Void) throws {
        var reader = try KeptRowsReader(log)
        while try reader.find() {
            let epoch = reader.place.epoch
            try read(reader.reader) { (payload) throws(ByteError) in
                try KeptRowsCodec.visit(
                    payload, { (note) throws(ByteError) in body(note.schema, epoch) },
                    { (_, _, _) throws(ByteError) in })
            }
        }
    }
}

extension KeptRows {
    /// Returns the rows with their values masked, encoded as in the log.
    func masked(by masks: MaskedRelation) throws(ByteError) -> KeptRows {
        var shown = self
        for index in rows.indices where !rows[index].isForgotten {
            let values = try RowValue.row(rows[index].image)
            var writer = ByteWriter(capacity: rows[index].image.count)
            writer.append(big: UInt16(truncatingIfNeeded: values.count))
            for value in masks.shown(values) { value.append(to: &writer) }
            shown.rows[index].image = writer.copied()
        }
        return shown
    }
}

extension RowValue {
    /// Returns the values of a row image that is encoded as in the log.
    static func row(_ image: [UInt8]) throws(ByteError) -> [RowValue] {
        let tuple = Tuple(image.rawBytes)
        var values: [RowValue] = []
        values.reserveCapacity(tuple.columnCount)
        var columns = tuple.columns()
        while let value = try columns.next() { values.append(RowValue(value)) }
        return values
    }

    /// Appends the value in the encoding of a row image. A masked value becomes the text of its mark.
    func append(to tuple: inout ByteWriter) {
        switch self {
        case .null: tuple.append(UInt8(ascii: "n"))
        case .unchanged: tuple.append(UInt8(ascii: "u"))
        case .text(let bytes): Self.append("t", bytes, to: &tuple)
        case .binary(let bytes): Self.append("b", bytes, to: &tuple)
        case .masked(let tag): Self.append("t", Array(MaskMark.text(tag).utf8), to: &tuple)
        }
    }

    private static func append(_ kind: String, _ bytes: [UInt8], to tuple: inout ByteWriter) {
        tuple.append(kind)
        tuple.append(big: UInt32(truncatingIfNeeded: bytes.count))
        tuple.append(bytes)
    }
}
