/// Type of a column as the catalog describes it, with the facts that comparisons need. If the type is a domain, this is
/// its base type.
public struct TypeFacts: Sendable, Hashable {
    public enum Shape: Sendable, Hashable {
        case base
        indirect case array(of: TypeFacts)
        /// Enumeration. The labels have the order of the type.
        case enumeration(labels: [String])
        /// Composite, range or extension type. Only PostgreSQL can compare its values.
        case other
    }

    public var oid: UInt32
    /// Name as PostgreSQL's `format_type` writes it, such as `timestamp with time zone`. Messages and casts can use it.
    public var name: String
    public var shape: Shape

    public init(oid: UInt32, name: String, shape: Shape = .base) {
        self.oid = oid
        self.name = name
        self.shape = shape
    }
}

/// Rules by which the texts of a column are compared.
public enum Collation: Sendable, Hashable {
    /// The type has no collation.
    case none
    /// The collation is `C` or `POSIX`: equality and order are those of the bytes.
    case bytewise
    /// Texts are equal if their bytes are, but only PostgreSQL knows their order. The name is quoted for COLLATE; nil
    /// means the database's default collation.
    case deterministic(name: String?)
    /// Collation in which only PostgreSQL knows if two texts are equal. The name is as for `deterministic`.
    case nondeterministic(name: String?)
}

/// Facts about a column of a table that clients can subscribe to. The column's index in the catalog's list is its
/// *slot*.
public struct ColumnFacts: Sendable, Hashable {
    public var name: String
    public var type: TypeFacts
    public var collation: Collation

    public init(name: String, type: TypeFacts, collation: Collation = .none) {
        self.name = name
        self.type = type
        self.collation = collation
    }
}
