/// A type as the catalog describes it, as far as comparing its values takes it. Domains are resolved to their base type.
public struct TypeFacts: Sendable, Hashable {
    public enum Shape: Sendable, Hashable {
        case base
        indirect case array(of: TypeFacts)
        /// The labels in the type's order.
        case enumeration(labels: [String])
        /// Composites, ranges and what extensions bring: values of it are compared by PostgreSQL alone.
        case other
    }

    public var oid: UInt32
    /// As `format_type` writes it, `integer` or `timestamp with time zone`: fit for messages and for casts.
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
    /// The type has none.
    case none
    /// `C`, `POSIX`: equality and order are those of the bytes.
    case bytewise
    /// Equality is that of the bytes; the order is PostgreSQL's to say. The name is quoted, fit for COLLATE; nil is the
    /// database's own.
    case deterministic(name: String?)
    case nondeterministic(name: String?)
}

/// A column of a table that can be subscribed to. Its place in the table's list is its *slot*.
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
