/// Type of a column as the catalog describes it, with the facts that comparisons need. A domain is replaced by its base
/// type.
public struct TypeFacts: Sendable, Hashable {
    public enum Shape: Sendable, Hashable {
        case base
        indirect case array(of: TypeFacts)
        /// Labels in the type's order.
        case enumeration(labels: [String])
        /// Composite, range and extension types. Only PostgreSQL compares their values.
        case other
    }

    public var oid: UInt32
    /// Name as `format_type` writes it, `integer` or `timestamp with time zone`: usable in messages and casts.
    public var name: String
    public var shape: Shape

    public init(oid: UInt32, name: String, shape: Shape = .base) {
        self.oid = oid
        self.name = name
        self.shape = shape
    }
}

/// The rules by which a column's text is compared.
public enum Collation: Sendable, Hashable {
    /// The type has no collation.
    case none
    /// `C` or `POSIX`: equality and order are bytewise.
    case bytewise
    /// Equality is bytewise, but only PostgreSQL knows the order. The name is quoted for use in COLLATE; nil means the
    /// database's own collation.
    case deterministic(name: String?)
    case nondeterministic(name: String?)
}

/// Column of a table that clients can subscribe to. The column's index in the catalog's list is called its *slot*.
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
