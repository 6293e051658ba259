import Change
import Policy

/// Set of row operations, such as those that a publication publishes or a binding asks for.
public struct RowOperations: OptionSet, Sendable, Hashable {
    public let rawValue: UInt8

    public init(rawValue: UInt8) { self.rawValue = rawValue }

    public static let insert = RowOperations(rawValue: 1)
    public static let update = RowOperations(rawValue: 2)
    public static let delete = RowOperations(rawValue: 4)
    public static let all: RowOperations = [.insert, .update, .delete]

    /// Parses the `event` of a binding. Any text other than the three operations means all of them, like `*`.
    public init(event: String) {
        switch event.uppercased() {
        case "INSERT": self = .insert
        case "UPDATE": self = .update
        case "DELETE": self = .delete
        default: self = .all
        }
    }

    var names: [String] {
        [(RowOperations.insert, "INSERT"), (.update, "UPDATE"), (.delete, "DELETE")].filter { contains($0.0) }.map(\.1)
    }

    /// Text of the operations as clients write it in `event`.
    public var event: String {
        switch self {
        case .insert: "INSERT"
        case .update: "UPDATE"
        case .delete: "DELETE"
        default: "*"
        }
    }
}

/// Replica identity of a table: the old row's columns that updates and deletes contain.
public enum ReplicaIdentity: Sendable, Hashable {
    /// The columns of the primary key.
    case primaryKey
    /// All columns.
    case full
    /// The columns of an index, as column slots.
    case index([Int])
    case nothing
}

/// Column as the catalog describes it. Its index in the table's list is its *slot*.
public struct CatalogColumn: Sendable, Hashable {
    public var facts: ColumnFacts
    /// Column number `pg_attribute.attnum`. It stays the same when other columns are dropped.
    public var number: Int
    /// Oid of the declared type, also if that is a domain. It identifies the column in a stored row. The type's name
    /// cannot, because pgoutput names a domain by its base type.
    public var typeOID: UInt32
    /// Name of the declared type in `pg_type`, such as `int4`, `_text` or a domain's name. Clients receive it in
    /// `columns`.
    public var typeName: String
    /// Declared type in the SQL syntax of a cast, such as `character varying(20)` or a domain's name.
    public var declaredType: String
    /// Declared collation, quoted for use with COLLATE; nil if it is the type's default.
    public var declaredCollation: String?
    public var rendering: ColumnRendering
    /// True if PostgreSQL computes the column from other columns.
    public var isGenerated: Bool
    /// True if changes contain the column. False if the publication's column list omits it, or if it is generated and
    /// not published.
    public var isPublished: Bool
    /// Expression that computes the column. Nil if changes contain the column, or if they lack a column that the
    /// expression reads.
    public var generation: ColumnGeneration?
    /// Number of the transaction that last defined the column. It changes even if `ALTER … TYPE … USING` rewrites the
    /// column's values in all rows and leaves the rest of the definition as it was. The replication stream does not
    /// report such a rewrite.
    var definedBy: UInt32 = 0
    /// LSN after which all committed rows have the column with its present name and type.
    public var since: LSN
    /// Labels of the column's enum type, each with the LSN after which its text means this label. Empty for other
    /// types.
    public var labels: [LabelAge]
    /// LSN after which the enumerations and composite types in the column's type are as they are now.
    public var partsSince: LSN

    public init(
        facts: ColumnFacts, number: Int, typeOID: UInt32, typeName: String, declaredType: String,
        declaredCollation: String? = nil, rendering: ColumnRendering, isGenerated: Bool = false,
        isPublished: Bool = true, generation: ColumnGeneration? = nil, definedBy: UInt32 = 0,
        since: LSN = .zero, labels: [LabelAge] = [], partsSince: LSN = .zero
    ) {
        self.facts = facts
        self.number = number
        self.typeOID = typeOID
        self.typeName = typeName
        self.declaredType = declaredType
        self.declaredCollation = declaredCollation
        self.rendering = rendering
        self.isGenerated = isGenerated
        self.isPublished = isPublished
        self.generation = generation
        self.definedBy = definedBy
        self.since = since
        self.labels = labels
        self.partsSince = partsSince
    }

    public var name: String { facts.name }
    /// True if changes contain the column, or if PostgreSQL can compute it from columns that they contain.
    public var isKnown: Bool { isPublished || generation != nil }
}

/// Expression that computes a generated column.
public struct ColumnGeneration: Sendable, Hashable {
    /// SQL expression as `pg_get_expr` writes it while only `pg_catalog` is in the search path.
    public var expression: String
    /// Numbers (`attnum`) of the columns that the expression reads.
    public var inputs: [Int]
}

/// Published table. Snapshots share one object of a table for as long as none of its properties changes.
public final class CatalogTable: Sendable {
    public let oid: UInt32
    public let schema: String
    public let name: String
    /// Columns in the order of their numbers, without dropped columns.
    public let columns: [CatalogColumn]
    /// Facts about the columns for checking filters, by slot.
    public let facts: [ColumnFacts]
    /// Slots of the primary key's columns; empty if there is no primary key.
    public let primaryKey: [Int]
    /// Old columns that updates and deletes contain. If partitions differ, the columns that all of them include.
    public let identity: ReplicaIdentity
    public let hasRowSecurity: Bool
    public let forcesRowSecurity: Bool
    public let hasPolicies: Bool
    public let operations: RowOperations
    /// True if the publication has a row filter, so that it omits some rows of the table.
    public let hasRowFilter: Bool
    /// True if the table is permanent and has no partitions, parents or children, so that it contains all of its rows
    /// itself.
    public let isOrdinary: Bool
    /// True if some partitions have another replica identity than the table. `identity` is then what all of them
    /// include.
    public let hasMixedIdentity: Bool
    /// Oids of the catalog rows by which the publication includes the table. They change if the table is removed and
    /// added again.
    public let publishedBy: String
    /// Version of the publication's row in the catalog. It changes whenever an option of the publication changes.
    public let publicationVersion: String
    /// LSN after which the event log has every change of the table that the publication includes.
    public let publishedSince: LSN
    /// LSN after which changes from PostgreSQL contain exactly the columns that are published now, except those that a
    /// row did not have yet.
    public let listedSince: LSN
    /// Columns that have been dropped, with the LSN after which no row has them.
    public let dropped: [DroppedColumn]
    /// True if the table was locked, so that the expressions of its generated columns could not be read.
    let isUnsettled: Bool
    private let slots: [String: Int]

    public init(
        oid: UInt32, schema: String, name: String, columns: [CatalogColumn], primaryKey: [Int],
        identity: ReplicaIdentity, hasRowSecurity: Bool, forcesRowSecurity: Bool, hasPolicies: Bool,
        operations: RowOperations, hasRowFilter: Bool = false, isOrdinary: Bool = true,
        hasMixedIdentity: Bool = false, isUnsettled: Bool = false, publishedBy: String = "",
        publicationVersion: String = "", publishedSince: LSN = .zero, listedSince: LSN = .zero,
        dropped: [DroppedColumn] = []
    ) {
        self.oid = oid
        self.schema = schema
        self.name = name
        self.columns = columns
        facts = columns.map(\.facts)
        self.primaryKey = primaryKey
        self.identity = identity
        self.hasRowSecurity = hasRowSecurity
        self.forcesRowSecurity = forcesRowSecurity
        self.hasPolicies = hasPolicies
        self.operations = operations
        self.hasRowFilter = hasRowFilter
        self.isOrdinary = isOrdinary
        self.hasMixedIdentity = hasMixedIdentity
        self.isUnsettled = isUnsettled
        self.publishedBy = publishedBy
        self.publicationVersion = publicationVersion
        self.publishedSince = publishedSince
        self.listedSince = listedSince
        self.dropped = dropped
        slots = Dictionary(columns.enumerated().map { ($1.name, $0) }, uniquingKeysWith: { first, _ in first })
        assert(slots.count == columns.count, "no two columns of a table have one name")
        assert(zip(columns, columns.dropFirst()).allSatisfy { $0.number < $1.number }, "columns stand by their numbers")
        precondition(primaryKey.allSatisfy(columns.indices.contains), "a key is of its table's columns")
        if case .index(let index) = identity {
            precondition(index.allSatisfy(columns.indices.contains), "an identity is of its table's columns")
        }
    }

    public func slot(named name: String) -> Int? { slots[name] }

    /// Name as `schema.name`, quoted where necessary, for SQL that people read.
    public var quotedName: String { SQLName.quoted(schema) + "." + SQLName.quoted(name) }

    /// Slots of the generated columns that changes lack and PostgreSQL can compute for the hub.
    public var computed: [Int] { columns.indices.filter { columns[$0].generation != nil } }

    /// Returns the slots after replacing each computed column by the columns that its expression reads.
    public func sources(of slots: Set<Int>) -> Set<Int> {
        slots.reduce(into: []) { sources, slot in
            guard columns.indices.contains(slot), let generation = columns[slot].generation else {
                sources.insert(slot)
                return
            }
            let inputs = columns.indices.filter { generation.inputs.contains(columns[$0].number) }
            assert(!inputs.contains(slot), "no column is computed of itself")
            sources.formUnion(inputs)
        }
    }

    /// True if the newest change of a row in the log always contains the row as it is now. The publication then
    /// includes all operations, and no row enters or leaves the table without one.
    public var isRecallable: Bool { isOrdinary && operations.isSuperset(of: [.insert, .update, .delete]) }

    /// True if updates and deletes contain the old values of these columns, so that the hub knows both old and new
    /// values.
    public func identifies(_ slots: Set<Int>) -> Bool {
        guard slots.allSatisfy({ columns.indices.contains($0) && columns[$0].isPublished }) else { return false }
        switch identity {
        case .full: return true
        case .primaryKey: return slots.isSubset(of: primaryKey) && !primaryKey.isEmpty
        case .index(let index): return slots.isSubset(of: index) && !index.isEmpty
        case .nothing: return false
        }
    }
}

extension CatalogTable: Equatable {
    public static func == (one: CatalogTable, other: CatalogTable) -> Bool {
        one === other
            || one.oid == other.oid && one.schema == other.schema && one.name == other.name
                && one.columns == other.columns && one.primaryKey == other.primaryKey && one.identity == other.identity
                && one.hasRowSecurity == other.hasRowSecurity && one.forcesRowSecurity == other.forcesRowSecurity
                && one.hasPolicies == other.hasPolicies && one.operations == other.operations
                && one.hasRowFilter == other.hasRowFilter && one.isOrdinary == other.isOrdinary
                && one.hasMixedIdentity == other.hasMixedIdentity && one.isUnsettled == other.isUnsettled
                && one.publishedBy == other.publishedBy && one.publicationVersion == other.publicationVersion
                && one.publishedSince == other.publishedSince && one.listedSince == other.listedSince
                && one.dropped == other.dropped
    }
}

extension CatalogColumn {
    /// True if a column of a stored row has this column's name and type.
    public func isSame(as column: Column) -> Bool { column.name == name && column.typeOID == typeOID }
}
