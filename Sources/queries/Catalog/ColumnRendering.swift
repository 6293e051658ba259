import Change
import Protocol

/// Conversion of a column's text to JSON, as a tree over PostgreSQL's own types.
///
/// The tree describes a type's structure, not the JSON syntax. Domains are replaced by their base types.
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
    /// Array whose elements are separated by `delimiter`: a comma, except for `box`.
    case array(of: ColumnRendering, delimiter: UInt8)
    case composite([Field])
    case hstore
}

extension ColumnRendering {
    /// Rendering in the form that the encoder uses.
    public var value: ValueRendering {
        switch self {
        case .scalar(let oid): .plain(BuiltInType.rendering(of: oid))
        // The elements of a box array are separated by semicolons. The array is sent as PostgreSQL's own text.
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
