/// How the text of a column's values becomes JSON, as a tree over PostgreSQL's own types.
///
/// It says what a type is made of and nothing of how JSON is written; domains are resolved to what they are over.
public indirect enum ColumnRendering: Sendable, Hashable {
    public struct Field: Sendable, Hashable {
        public var name: String
        public var rendering: ColumnRendering

        public init(name: String, rendering: ColumnRendering) {
            self.name = name
            self.rendering = rendering
        }
    }

    /// A type that is rendered by its OID alone, as `BuiltInType.rendering(of:)` does; unknown ones are strings.
    case scalar(oid: UInt32)
    /// `delimiter` separates the elements: a comma, but for `box`.
    case array(of: ColumnRendering, delimiter: UInt8)
    case composite([Field])
    case hstore
}
