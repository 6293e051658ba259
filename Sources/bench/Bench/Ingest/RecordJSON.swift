import Bytes
import Change
import Replication

/// Writer of one relation's rows as JSON objects, in the form that subscribers receive.
struct RecordJSON {
    private struct Column {
        /// End of the column's key in `keys`. The key begins where the previous one ends.
        var keyEnd: Int
        var rendering: JSONRendering
    }

    /// All keys with the punctuation around them, built once for all rows.
    private let keys: [UInt8]
    private let columns: [Column]

    init(_ relation: Relation) {
        var writer = ByteWriter()
        var columns: [Column] = []
        for column in relation.columns {
            writer.append(columns.isEmpty ? UInt8(ascii: "{") : UInt8(ascii: ","))
            JSONText.appendString(column.name, to: &writer)
            writer.append(UInt8(ascii: ":"))
            columns.append(Column(keyEnd: writer.count, rendering: BuiltInType.rendering(of: column.typeOID)))
        }
        self.columns = columns
        keys = writer.copied()
    }

    func append(_ row: Tuple, to writer: inout ByteWriter) throws(ByteError) {
        var values = row.columns()
        // SAFETY: any byte is a valid UInt8.
        let keys = unsafe keys.span.bytes
        let columns = columns.span
        var keyStart = 0
        for index in columns.indices {
            guard let value = try values.next() else { break }
            let column = columns[index]
            writer.append(keys.extracting(keyStart..<column.keyEnd))
            keyStart = column.keyEnd
            switch value {
            case .text(let text): column.rendering.append(text, to: &writer)
            case .null, .unchanged, .binary: writer.append("null")
            }
        }
        writer.append(UInt8(ascii: "}"))
    }
}
