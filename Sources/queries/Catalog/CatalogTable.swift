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

    /// Of a binding's `event`: whatever is none of the three is `*`.
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

    /// As clients write it.
    public var event: String {
        switch self {
        case .insert: "INSERT"
        case .update: "UPDATE"
        case .delete: "DELETE"
        default: "*"
        }
    }
}

/// What `old` images hold of a row.
public enum ReplicaIdentity: Sendable, Hashable {
    /// The columns of the primary key.
    case primaryKey
    case full
    /// The columns of an index, by slot.
    case index([Int])
    case nothing
}

/// A column as the catalog has it. Its place in the table's list is its *slot*.
public struct CatalogColumn: Sendable, Hashable {
    public var facts: ColumnFacts
    /// `pg_attribute.attnum`: it stays when other columns go.
    public var number: Int
    /// The declared type's own oid, also of a domain: by it a stored row's column is known to be this one. Its name is
    /// not, for pgoutput names a domain by its base type.
    public var typeOID: UInt32
    /// The declared type's name in `pg_type`: `int4`, `_text`, a domain's own. What clients find in `columns`.
    public var typeName: String
    /// The declared type in full, as a cast needs it: `character varying(20)`, a domain's own name.
    public var declaredType: String
    /// Where it is not the type's own: quoted, fit for COLLATE.
    public var declaredCollation: String?
    public var rendering: ColumnRendering
    /// PostgreSQL computes it from other columns.
    public var isGenerated: Bool
    /// False where a column list leaves it out, or where it is generated: changes do not carry it then.
    public var isPublished: Bool
    /// How to compute it, where changes do not carry it but all that it is made of.
    public var generation: ColumnGeneration?
    /// The transaction that last defined it. One that writes the column anew in all rows (`ALTER … TYPE … USING`) may leave
    /// everything else as it was, and no change of a row tells of it.
    var definedBy: UInt32 = 0
    /// Position behind which committed rows have the column under its present name and type.
    public var since: LSN
    /// Labels of the column's type, if it is an enumeration.
    public var labels: [LabelAge]
    /// Position behind which the enumerations or fields that the column's type is made of are as they are now.
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
    /// Changes carry it, or it can be computed of what they carry.
    public var isKnown: Bool { isPublished || generation != nil }
}

/// What makes a generated column's value.
public struct ColumnGeneration: Sendable, Hashable {
    /// As `pg_get_expr` writes it for a search path that has nothing but PostgreSQL's own.
    public var expression: String
    /// The numbers of the columns that it reads.
    public var inputs: [Int]
}

/// A published table. It stays the same object from one snapshot to the next for as long as nothing of it changes.
public final class CatalogTable: Sendable {
    public let oid: UInt32
    public let schema: String
    public let name: String
    /// In the order of their numbers, without dropped ones.
    public let columns: [CatalogColumn]
    /// The columns as filters see them, by slot.
    public let facts: [ColumnFacts]
    /// Slots. Empty: there is no primary key.
    public let primaryKey: [Int]
    public let identity: ReplicaIdentity
    public let hasRowSecurity: Bool
    public let forcesRowSecurity: Bool
    public let hasPolicies: Bool
    public let operations: RowOperations
    /// The publication leaves out some of the rows.
    public let hasRowFilter: Bool
    /// It is permanent and all of its rows are its own: no partition, no parent, no view.
    public let isOrdinary: Bool
    /// Its partitions keep other parts of old rows than it does itself: `identity` is what is sure of all of them.
    public let hasMixedIdentity: Bool
    /// The catalog's rows that put it into the publication: one that was taken out and put in again has others.
    public let publishedBy: String
    /// Version of the catalog's row of the publication; it changes with each change of the options.
    public let publicationVersion: String
    /// Position behind which the log has every change of the table that the publication includes.
    public let publishedSince: LSN
    /// Position behind which PostgreSQL has sent the columns that are published now, for rows that had them.
    public let listedSince: LSN
    public let dropped: [DroppedColumn]
    /// It is locked, and how its generated columns are computed could not be read.
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

    /// `schema.name`, quoted where it must be: for SQL that is shown to people.
    public var quotedName: String { SQLName.quoted(schema) + "." + SQLName.quoted(name) }

    /// Slots of columns that have to be computed.
    public var computed: [Int] { columns.indices.filter { columns[$0].generation != nil } }

    /// The same columns, and instead of those that have to be computed what they are made of.
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

    /// Whether the newest change of a row in the log tells what the row is: all of them are published, and no rows come or
    /// go but by changes.
    public var isRecallable: Bool { isOrdinary && operations.isSuperset(of: [.insert, .update, .delete]) }

    /// Whether changes tell what stood in these columns before and stands there now.
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
