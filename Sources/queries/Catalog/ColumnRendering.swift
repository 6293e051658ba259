import Change
import Protocol

/// Tree that describes how the text of a column becomes JSON, built from PostgreSQL's own types.
///
/// The tree contains the structure of the type, not the JSON syntax. Domains are replaced by their base types.
public indirect enum ColumnRendering: Sendable, Hashable {
    public struct Field: Sendable, Hashable {
        public var name: String
        public var rendering: ColumnRendering

        public init(name: String, rendering: ColumnRendering) {
            self.name = name
            self.rendering = rendering
        }
    }

    /// A type that needs only its OID (see `BuiltInType.rendering(of:)`). A type with an unknown OID becomes a string.
    case scalar(oid: UInt32)
    /// An array. `delimiter` separates its elements in PostgreSQL's text: a semicolon for `box`, otherwise a comma.
    case array(of: ColumnRendering, delimiter: UInt8)
    case composite([Field])
    case hstore
}

extension ColumnRendering {
    /// Converts the tree to the form that the encoder uses.
    public var value: ValueRendering {
        switch self {
        case .scalar(let oid): .plain(BuiltInType.rendering(of: oid))
        // The elements of a box array are separated by semicolons. Such an array is sent as one string, in PostgreSQL's
        // text.
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
