import Bytes
import Change
import Replication

/// Writes rows of one relation as JSON objects, as subscribers are sent them.
struct RecordJSON {
    /// The key with what stands before it, made once for all rows.
    private let keys: [[UInt8]]
    private let renderings: [JSONRendering]

    init(_ relation: Relation) {
        keys = relation.columns.enumerated().map { index, column in
            var writer = ByteWriter()
            writer.append(index == 0 ? "{" : ",")
            JSONText.appendString(column.name, to: &writer)
            writer.append(":")
            return writer.copied()
        }
        renderings = relation.columns.map { BuiltInType.rendering(of: $0.typeOID) }
    }

    func append(_ row: Tuple, to writer: inout ByteWriter) throws(ByteError) {
        var columns = row.columns()
        var index = 0
        while let value = try columns.next(), index < keys.count {
            writer.append(keys[index])
            switch value {
            case .text(let text): renderings[index].append(text, to: &writer)
            case .null, .unchanged, .binary: writer.append("null")
            }
            index += 1
        }
        writer.append("}")
    }
}
