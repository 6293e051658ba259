import Bytes
import Change

/// Rows of a table with certain values in one column. Some of them may have come into a client's sight or left it,
/// although they did not change.
public struct ChangedSet: Sendable, Equatable {
    public let schema: String
    public let table: String
    public let column: String
    /// Values as JSON, in the form that they have in the records of changes.
    public let values: [[UInt8]]

    /// Creates a set.
    ///
    /// - Parameters:
    ///   - texts: values as PostgreSQL writes them.
    ///   - rendering: rendering of the column's values as JSON.
    public init(schema: String, table: String, column: String, texts: [String], _ rendering: ValueRendering) {
        self.schema = schema
        self.table = table
        self.column = column
        values = texts.map { text in
            var writer = ByteWriter()
            rendering.append(Array(text.utf8).rawBytes, to: &writer)
            return writer.copied()
        }
    }

    /// Appends the member `sets` of a message.
    static func append(_ sets: [ChangedSet], to writer: inout ByteWriter) {
        writer.append(",\"sets\":[")
        for (place, set) in sets.enumerated() {
            writer.append(place == 0 ? "{\"schema\":" : ",{\"schema\":")
            JSONText.appendString(set.schema, to: &writer)
            writer.append(",\"table\":")
            JSONText.appendString(set.table, to: &writer)
            writer.append(",\"column\":")
            JSONText.appendString(set.column, to: &writer)
            writer.append(",\"values\":[")
            for (place, value) in set.values.enumerated() {
                if place > 0 { writer.append(UInt8(ascii: ",")) }
                writer.append(value.rawBytes)
            }
            writer.append("]}")
        }
        writer.append(UInt8(ascii: "]"))
    }
}
