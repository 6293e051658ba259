import Asking
import Change
import Policy

/// Facts that the catalog has about a table, without its columns.
struct TableHead {
    var oid: UInt32
    var schema: String
    var name: String
    var hasRowSecurity: Bool
    var forcesRowSecurity: Bool
    /// Replica identity of the table as the catalog has it: `pg_class.relreplident`.
    var identity: String
    /// Numbers (`attnum`) of the primary key's columns.
    var primaryKey: [Int]
    /// Numbers (`attnum`) of the columns of the index that is the replica identity.
    var identityIndex: [Int]
    var hasPolicies: Bool
    var operations: RowOperations
    /// Numbers (`attnum`) of the columns in the publication. Nil means all columns that are not generated.
    var published: [Int]?
    var isOrdinary: Bool
    var hasRowFilter: Bool
    /// Replica identity whose columns the old rows of all partitions contain; nil if the partitions' identities are the
    /// same.
    var sureIdentity: String?
    /// Oids of the catalog rows by which the publication includes the table, as a text.
    var publishedBy: String
    /// True if the publication includes the table. False if only policies read it.
    var isPublished: Bool { !operations.isEmpty || !publishedBy.isEmpty }

    init?(_ row: [String?]) {
        guard let oid = row.number(0), let schema = row[1], let name = row[2] else { return nil }
        self.oid = oid
        self.schema = schema
        self.name = name
        hasRowSecurity = row.flag(3)
        forcesRowSecurity = row.flag(4)
        identity = row[5] ?? "n"
        primaryKey = row.numbers(6) ?? []
        identityIndex = row.numbers(7) ?? []
        hasPolicies = row.flag(8)
        operations = []
        if row.flag(9) { operations.insert(.insert) }
        if row.flag(10) { operations.insert(.update) }
        if row.flag(11) { operations.insert(.delete) }
        published = row.numbers(12)
        isOrdinary = row.flag(13)
        hasRowFilter = row.flag(14)
        sureIdentity = row[15]
        publishedBy = row[16] ?? ""
    }

    func table(
        _ attributes: [TableAttribute], _ types: TypeBook, _ collations: CollationBook, _ ages: DefinitionAges
    ) -> CatalogTable {
        let numbers = attributes.map(\.number)
        func slots(_ wanted: [Int]) -> [Int] { numbers.indices.filter { wanted.contains(numbers[$0]) } }
        return CatalogTable(
            oid: oid, schema: schema, name: name,
            columns: attributes.map { column($0, attributes, types, collations, ages) }, primaryKey: slots(primaryKey),
            identity: replicaIdentity(slots(identityIndex)), hasRowSecurity: hasRowSecurity,
            forcesRowSecurity: forcesRowSecurity, hasPolicies: hasPolicies, operations: operations,
            hasRowFilter: hasRowFilter, isOrdinary: isOrdinary, hasMixedIdentity: sureIdentity != nil,
            isUnsettled: attributes.contains { $0.isGenerated && $0.generation == nil },
            publishedBy: publishedBy, publicationVersion: ages.publicationVersion,
            publishedSince: ages.publications[oid] ?? .zero,
            listedSince: max(ages.begin, ages.publications[oid] ?? .zero), dropped: ages.dropped(of: oid))
    }

    private func column(
        _ attribute: TableAttribute, _ all: [TableAttribute], _ types: TypeBook, _ collations: CollationBook,
        _ ages: DefinitionAges
    ) -> CatalogColumn {
        let labels = types.labels(attribute.type, ages)
        return CatalogColumn(
            facts: ColumnFacts(
                name: attribute.name, type: types.facts(attribute.type),
                collation: collations.collation(attribute.collation)),
            number: attribute.number, typeOID: attribute.type, typeName: types.name(attribute.type),
            declaredType: attribute.declaredType, declaredCollation: attribute.declaredCollation,
            rendering: types.rendering(attribute.type), isGenerated: attribute.isGenerated,
            isPublished: isPublished(attribute), generation: generation(of: attribute, all),
            definedBy: attribute.definedBy, since: ages.since(attribute), labels: labels,
            partsSince: labels.isEmpty ? types.since(attribute.type, ages) : .zero)
    }

    private func isPublished(_ attribute: TableAttribute) -> Bool {
        published?.contains(attribute.number) ?? !attribute.isGenerated
    }

    /// Returns the expression that computes the column. Nil if changes contain the column, or if they lack a column
    /// that the expression reads.
    private func generation(of attribute: TableAttribute, _ all: [TableAttribute]) -> ColumnGeneration? {
        guard let generation = attribute.generation, !isPublished(attribute) else { return nil }
        let carried = Set(all.filter { !$0.isGenerated && isPublished($0) }.map(\.number))
        return carried.isSuperset(of: generation.inputs) ? generation : nil
    }

    private func replicaIdentity(_ index: [Int]) -> ReplicaIdentity {
        switch sureIdentity ?? identity {
        case "d": .primaryKey
        case "f": .full
        case "i": .index(index)
        default: .nothing
        }
    }
}

/// Column as the catalog's row in `pg_attribute` describes it.
struct TableAttribute {
    var table: UInt32
    var number: Int
    var name: String
    var type: UInt32
    var collation: UInt32
    var isGenerated: Bool
    var declaredType: String
    var declaredCollation: String?
    var generation: ColumnGeneration?
    var definedBy: UInt32

    init?(_ row: [String?]) {
        guard let table = row.number(0), let number = row[1].flatMap({ Int($0) }), let name = row[2],
            let type = row.number(3), let collation = row.number(4), let declaredType = row[6]
        else { return nil }
        self.table = table
        self.number = number
        self.name = name
        self.type = type
        self.collation = collation
        isGenerated = row.flag(5)
        self.declaredType = declaredType
        declaredCollation = row[7]
        generation = row[8].map { ColumnGeneration(expression: $0, inputs: row.numbers(9) ?? []) }
        definedBy = row.number(10) ?? 0
    }
}

extension TypeBook.Entry {
    init?(_ row: [String?]) {
        guard let oid = row.number(0), let name = row[1], let written = row[2], let kind = row[3],
            let base = row.number(4)
        else { return nil }
        self.init(
            oid: oid, name: name, written: written, kind: kind, base: base, element: row.number(5) ?? 0,
            delimiter: row[6].flatMap { UInt8($0) } ?? UInt8(ascii: ","), fromExtension: row[7])
    }
}

extension CollationBook.Entry {
    init?(_ row: [String?]) {
        guard let oid = row.number(0), let quotedName = row[1], let provider = row[2] else { return nil }
        self.init(
            oid: oid, quotedName: quotedName, provider: provider, collate: row[3], ctype: row[4],
            isDeterministic: row.flag(5))
    }
}
