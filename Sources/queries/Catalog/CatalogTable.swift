import Change
import Policy

/// Operations on rows: those that a publication publishes, or that a binding asks for.
public struct RowOperations: OptionSet, Sendable, Hashable {
    public let rawValue: UInt8

    public init(rawValue: UInt8) { self.rawValue = rawValue }

    public static let insert = RowOperations(rawValue: 1)
    public static let update = RowOperations(rawValue: 2)
    public static let delete = RowOperations(rawValue: 4)
    public static let all: RowOperations = [.insert, .update, .delete]

    /// Parses a binding's `event`. Any text except the three operations counts as `*`.
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

    /// Operations in the form in which clients write them.
    public var event: String {
        switch self {
        case .insert: "INSERT"
        case .update: "UPDATE"
        case .delete: "DELETE"
        default: "*"
        }
    }
}

/// Columns of the old row that updates and deletes contain.
public enum ReplicaIdentity: Sendable, Hashable {
    /// The columns of the primary key.
    case primaryKey
    case full
    /// The columns of an index, by slot.
    case index([Int])
    case nothing
}

/// A column as the catalog describes it. Its index in the table's list is its *slot*.
public struct CatalogColumn: Sendable, Hashable {
    public var facts: ColumnFacts
    /// Column number `pg_attribute.attnum`. It stays the same when other columns are dropped.
    public var number: Int
    /// Oid of the declared type, also for a domain. It identifies the column in a stored row. The type's name does not,
    /// because pgoutput names a domain by its base type.
    public var typeOID: UInt32
    /// Name of the declared type in `pg_type`: `int4`, `_text`, a domain's own. Clients find it in `columns`.
    public var typeName: String
    /// Full SQL of the declared type, as a cast needs it: `character varying(20)`, a domain's own name.
    public var declaredType: String
    /// Declared collation, quoted for use with COLLATE; nil if it is the type's default.
    public var declaredCollation: String?
    public var rendering: ColumnRendering
    /// True if PostgreSQL computes the column from other columns.
    public var isGenerated: Bool
    /// True if changes carry the column. False if a column list omits it, or if it is generated and not published.
    public var isPublished: Bool
    /// Expression that computes the column; nil if changes carry the column, or lack one of the expression's inputs.
    public var generation: ColumnGeneration?
    /// Transaction that last defined the column. It changes even if `ALTER … TYPE … USING` rewrites the column in all
    /// rows and keeps everything else. No change of a row reports such a rewrite.
    var definedBy: UInt32 = 0
    /// Position after which committed rows have the column under its present name and type.
    public var since: LSN
    /// Labels of the column's type, if it is an enumeration.
    public var labels: [LabelAge]
    /// Position after which the enumerations or fields that the column's type consists of are as they are now.
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
    /// True if changes carry the column, or if it can be computed from columns that they carry.
    public var isKnown: Bool { isPublished || generation != nil }
}

/// Expression that computes a generated column.
public struct ColumnGeneration: Sendable, Hashable {
    /// Expression as `pg_get_expr` writes it while the search path contains only `pg_catalog`.
    public var expression: String
    /// Numbers of the columns that the expression reads.
    public var inputs: [Int]
}

/// A published table. The object remains the same in later snapshots for as long as none of its properties changes.
public final class CatalogTable: Sendable {
    public let oid: UInt32
    public let schema: String
    public let name: String
    /// Columns in the order of their numbers, without dropped ones.
    public let columns: [CatalogColumn]
    /// Columns as filters see them, by slot.
    public let facts: [ColumnFacts]
    /// Slots of the primary key; empty if there is none.
    public let primaryKey: [Int]
    public let identity: ReplicaIdentity
    public let hasRowSecurity: Bool
    public let forcesRowSecurity: Bool
    public let hasPolicies: Bool
    public let operations: RowOperations
    /// True if the publication omits some of the rows.
    public let hasRowFilter: Bool
    /// True if the table is permanent and holds all of its rows itself: no partition, no parent, no view.
    public let isOrdinary: Bool
    /// True if its partitions have other replica identities than the table itself. `identity` is then the common
    /// minimum.
    public let hasMixedIdentity: Bool
    /// Catalog entries that put the table into the publication. They differ after the table is removed and added again.
    public let publishedBy: String
    /// Version of the publication's row in the catalog; it changes with each change of the options.
    public let publicationVersion: String
    /// Position after which the log has every change of the table that the publication includes.
    public let publishedSince: LSN
    /// Position after which PostgreSQL has sent the columns that are published now, for rows that had them.
    public let listedSince: LSN
    public let dropped: [DroppedColumn]
    /// True if the table is locked, so that the expressions of its generated columns could not be read.
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

    /// `schema.name`, quoted where necessary, for SQL that people read.
    public var quotedName: String { SQLName.quoted(schema) + "." + SQLName.quoted(name) }

    /// Slots of columns that PostgreSQL must compute for the hub.
    public var computed: [Int] { columns.indices.filter { columns[$0].generation != nil } }

    /// Returns the slots, with each computed column replaced by the columns that its expression reads.
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

    /// True if the newest change of a row in the log contains the present row: the publication has all operations, and
    /// rows come and go only by changes.
    public var isRecallable: Bool { isOrdinary && operations.isSuperset(of: [.insert, .update, .delete]) }

    /// True if changes contain both the old and the new values of these columns.
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
    /// True if a stored column is this one, with values of the same type.
    public func isSame(as column: Column) -> Bool { column.name == name && column.typeOID == typeOID }
}
