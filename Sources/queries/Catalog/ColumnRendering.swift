import Change
import Protocol

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

extension ColumnRendering {
    /// As the encoder wants it.
    public var value: ValueRendering {
        switch self {
        case .scalar(let oid): .plain(BuiltInType.rendering(of: oid))
        // A box array separates its elements by semicolons: it is left as the text PostgreSQL wrote.
        case .array(_, let delimiter) where delimiter != UInt8(ascii: ","): .plain(.scalar(.text))
        case .array(let element, _):
            if case .plain(.scalar(let scalar)) = element.value {
                .plain(.array(of: scalar.nested))
            } else {
                .array(of: element.value)
            }
        case .composite(let fields): .composite(fields.map { ValueRendering.Attribute($0.name, $0.rendering.value) })
        case .hstore: .plain(.scalar(.hstore))
        }
    }
}
