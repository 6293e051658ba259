/// Type of a column, with the properties that restrict the column's values.
public indirect enum TargetType: Sendable, Hashable {
    /// A built-in type of PostgreSQL, by its OID. `modifier` gives its length or precision.
    case builtIn(UInt32, modifier: Int32)
    case array(of: TargetType)
    case enumeration([String])
    /// A type of an extension, or a user-defined type, by its name.
    case named(String, modifier: Int32)

    /// Maximum number of characters in a value of this type; nil if there is no limit.
    var characters: Int? {
        guard case .builtIn(let oid, let modifier) = self, oid == Self.varchar || oid == Self.blankPadded, modifier > 4
        else { return nil }
        return Int(modifier) - 4
    }

    /// True if PostgreSQL has an equality operator for the type.
    var hasEquality: Bool {
        switch self {
        case .builtIn(let oid, _): ![114, 142, 600].contains(oid)
        case .array(let element): element.hasEquality
        case .enumeration, .named: true
        }
    }

    private static let blankPadded: UInt32 = 1042
    private static let varchar: UInt32 = 1043
}
