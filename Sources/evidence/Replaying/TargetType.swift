/// Type of a column, as far as it restricts the column's values.
public indirect enum TargetType: Sendable, Hashable {
    /// A type that every PostgreSQL has, by its OID, with its length or precision.
    case builtIn(UInt32, modifier: Int32)
    case array(of: TargetType)
    case enumeration([String])
    /// A type of an extension or of the user, by its name.
    case named(String, modifier: Int32)

    /// Maximum number of characters; nil if there is no limit.
    var characters: Int? {
        guard case .builtIn(let oid, let modifier) = self, oid == Self.varchar || oid == Self.blankPadded, modifier > 4
        else { return nil }
        return Int(modifier) - 4
    }

    /// True if values of the type can be compared.
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
