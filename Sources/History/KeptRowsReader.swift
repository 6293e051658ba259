import Bytes
import Change
import EventLog

/// Rows that were read from the database and put into the log, in its order.
enum KeptRowsReader {
    /// Each note as it stands in the log.
    ///
    /// - Parameter tables: keys of tables; entries without any of them may be passed over. Empty is all tables.
    static func visitNotes(
        _ log: HistoryLog, of tables: [UInt64] = [], _ body: (KeptRows, EventLogEntry) throws -> Void
    ) throws {
        let keys = tables.isEmpty ? [RowKey.kept] : tables.map { RowKey.kept(table: $0) }
        var reader = try EventLogReader(directory: log.directory, from: .oldest, matchingAnyOf: keys)
        while try reader.next() {
            guard reader.entry.kind == .keptRows else { continue }
            let notes: [KeptRows]
            do throws(ByteError) {
                notes = try KeptRowsCodec.decode(reader.payload)
            } catch {
                throw UnreadableEntry(
                    offset: reader.entry.offset, segment: reader.entry.segment, reason: error.description)
            }
            for note in notes { try body(note, reader.entry) }
        }
    }
}

extension KeptRows {
    /// What of it may be shown, in the form that it has.
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
    /// Of an image as `Tuple` reads it.
    static func row(_ image: [UInt8]) throws(ByteError) -> [RowValue] {
        // SAFETY: any byte is a valid UInt8, and the array outlives the tuple.
        let tuple = Tuple(unsafe image.span.bytes)
        var values: [RowValue] = []
        values.reserveCapacity(tuple.columnCount)
        var columns = tuple.columns()
        while let value = try columns.next() { values.append(RowValue(value)) }
        return values
    }

    /// As `TupleColumns` reads it. What is not to be shown is the text that says so.
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
