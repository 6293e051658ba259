import Bytes
import Catalog
import Change
import Messages

/// Which schemas the log's rows have, and whether the catalog knows them as they are.
struct SchemaRegistry {
    private struct Declaration {
        let table: CatalogTable
        let number: UInt64
    }

    /// Schemas as the log stores them.
    private var stored: [UInt64: Relation] = [:]
    /// Relations with the present names of their columns.
    private var relations: [UInt64: Relation] = [:]
    private var identities: [UInt64: ColumnIdentities] = [:]
    /// Catalog that the policies are judged by.
    private var catalog: CatalogSnapshot?
    private var eras = DefinitionEras([])
    private var era = 0
    /// Position of the transaction at hand; zero where the log's positions are of another history.
    private var moment = LSN.zero
    private var segment: UInt64 = 0
    private var declared: [UInt32: Declaration] = [:]
    private var lastDeclaration: UInt64 = 0
    /// A table was declared in the place of another: who was bound to that one hears nothing.
    private var hasReplaced = false
    /// Tables whose partitions keep less of old rows than the schemas of their changes say, as the catalog has them.
    private var mixed: [UInt32: CatalogTable] = [:]
    /// The schemas of such, as what their old images are sure to be.
    private var doubted: [UInt64: Relation] = [:]
    /// What of a schema that was told to the router has other types now.
    private var foreign: [UInt64: ForeignColumns] = [:]
    /// Schemas for which the catalog is being read again.
    private var asked: Set<UInt64> = []
    /// Of those whose rows are messages to topics.
    private(set) var messages = MessageLayouts()

    /// Enters a segment, and forgets the schemas of older ones: each segment has all schemas that it needs. True if schemas were
    /// forgotten, so that their other readers must be told of them again.
    mutating func enter(segment: UInt64) -> Bool {
        guard segment != self.segment else { return false }
        self.segment = segment
        stored.removeAll(keepingCapacity: true)
        relations.removeAll(keepingCapacity: true)
        identities.removeAll()
        foreign.removeAll()
        doubted.removeAll()
        asked.removeAll()
        messages.removeAll()
        return true
    }

    mutating func learn(_ payload: RawSpan) throws(ByteError) {
        let fingerprint = RelationCodec.fingerprint(of: payload)
        guard stored[fingerprint] == nil else { return }
        let relation = try RelationCodec.decode(payload)
        stored[fingerprint] = relation
        messages.learn(fingerprint, relation)
        restate(fingerprint, relation)
    }

    private mutating func restate(_ fingerprint: UInt64, _ relation: Relation) {
        let named = read(relation, fingerprint)
        relations[fingerprint] = named.relation
        identities[fingerprint] = named.identities
        doubted[fingerprint] = mixed[relation.oid]?.surelyOld(named.relation)
    }

    /// A stored schema as it is to be read at the transaction at hand.
    func read(_ relation: Relation, _ fingerprint: UInt64) -> (relation: Relation, identities: ColumnIdentities?) {
        guard let table = table(relation.oid) else { return (relation, nil) }
        let identities = ColumnIdentities(of: relation, in: table, at: moment)
        return (relation.renamed(identities, in: table, fingerprint), identities)
    }

    private func table(_ oid: UInt32) -> CatalogTable? { declared[oid]?.table ?? catalog?.related(oid) }

    /// Begins a transaction. True if names or labels have another meaning than in the one before.
    mutating func begin(at lsn: LSN, isOfThisHistory: Bool) -> Bool {
        moment = isOfThisHistory ? lsn : .zero
        let now = eras.number(at: moment)
        guard now != era else { return false }
        era = now
        restateAll()
        return true
    }

    private mutating func restateAll() {
        foreign.removeAll()
        for (fingerprint, relation) in stored { restate(fingerprint, relation) }
    }

    /// Returns the reading of tables whose rows are looked for, with the meaning of the transaction at hand.
    func lookback(_ tables: some Sequence<UInt32>) -> RecallRequest.Reading {
        let known = Dictionary(tables.compactMap { table in self.table(table).map { (table, $0) } }) { first, _ in first
        }
        return RecallRequest.Reading(tables: known, moment: moment)
    }

    /// True if rows of the table that were committed there may differ from the log's earlier versions.
    func isBroken(_ oid: UInt32) -> Bool { !(table(oid)?.publishedSince.isBehind(moment) ?? true) }

    func relation(_ fingerprint: UInt64) -> Relation? { doubted[fingerprint] ?? relations[fingerprint] }

    /// Whose changes are read with less of their old rows than they say to have.
    var doubtedSchemas: [UInt64] { doubted.isEmpty ? [] : doubted.keys.sorted() }

    /// Whether changes of the schema can be judged; false where the catalog has to be read again first. It is read once
    /// for each schema and snapshot: a row that is older than the catalog stays another than it says.
    mutating func isReady(
        _ fingerprint: UInt64, _ relation: Relation, _ snapshot: CatalogSnapshot?, _ router: inout ChangeRouter
    ) -> Bool {
        // As those have it who are judged: a newer snapshot may be there that they have yet to hear of.
        let table = table(relation.oid) ?? snapshot?.table(relation.oid) ?? snapshot?.followed(relation.oid)
        // Messages come with a publication of their own: that the clients' does not have their table is no news.
        let isKnown = table.map { $0.has(relation) } ?? (messages.layout(of: fingerprint) != nil)
        guard isKnown || asked.contains(fingerprint) else {
            asked.insert(fingerprint)
            return false
        }
        asked.remove(fingerprint)
        assert(table.map { $0.oid == relation.oid } ?? true, "a schema is held against its own table")
        let places = (table?.foreignColumns(of: relation) ?? []).union(unsure(relation))
        foreign[fingerprint] =
            places.isEmpty
            ? nil
            : table.flatMap {
                ForeignColumns(relation, places, of: $0, identities[fingerprint], at: moment)
            }
        router.noteRelation(fingerprint, relation, foreign: places)
        return true
    }

    /// Places whose stored values may mean something else than they say.
    func unsure(_ relation: Relation) -> Set<Int> {
        table(relation.oid)?.unsure(relation, at: moment) ?? []
    }

    /// What of a schema's rows has to be converted before anybody looks at it.
    func foreignColumns(_ fingerprint: UInt64) -> ForeignColumns? { foreign.isEmpty ? nil : foreign[fingerprint] }

    /// Whether the log has the rows of a table as they are.
    func isRecallable(_ table: UInt32) -> Bool { declared[table]?.table.isRecallable ?? false }

    /// Whether who is bound to a table counts on old rows being whole.
    func promisesWholeRows(_ table: UInt32) -> Bool { declared[table]?.table.identity == .full }

    /// The declaration's number, by which `holds` knows whether the index still has it.
    mutating func declare(_ table: CatalogTable, _ router: inout ChangeRouter) -> UInt64 {
        if let known = declared[table.oid] {
            if known.table === table { return known.number }
            hasReplaced = true
        }
        assert(declared[table.oid]?.table !== table, "a table is declared once")
        lastDeclaration += 1
        declared[table.oid] = Declaration(table: table, number: lastDeclaration)
        router.declare(table: table.oid, columns: table.columns.map(\.name))
        if catalog?.related(table.oid) !== table {
            for (fingerprint, relation) in stored where relation.oid == table.oid { restate(fingerprint, relation) }
        }
        return lastDeclaration
    }

    /// Somebody is bound to it, or was.
    func isDeclared(_ table: UInt32) -> Bool { declared[table] != nil }

    func holds(_ declaration: UInt64, of table: CatalogTable) -> Bool {
        declared[table.oid]?.number == declaration
    }

    mutating func takeReplacement() -> Bool {
        defer { hasReplaced = false }
        return hasReplaced
    }

    mutating func take(_ snapshot: CatalogSnapshot, _ router: inout ChangeRouter) {
        let before = catalog
        catalog = snapshot
        eras = DefinitionEras(snapshot.tables + snapshot.tablesOfPolicies)
        era = eras.number(at: moment)
        mixed = [:]
        for table in snapshot.tables where table.hasMixedIdentity { mixed[table.oid] = table }
        doubted = [:]
        for (oid, known) in declared where snapshot.table(oid) !== known.table {
            declared[oid] = nil
            router.forget(table: oid)
        }
        restateAll()
        router.forgetRelations()
        if snapshot.tables.contains(where: { $0.isReadOtherwise(than: before?.table($0.oid)) }) { router.forgetRows() }
    }
}

extension CatalogTable {
    /// Places of a schema whose values may mean something else than they say, in rows that were committed there.
    func unsure(_ relation: Relation, at moment: LSN) -> Set<Int> {
        Set(
            relation.columns.indices.filter { place in
                guard let slot = slot(named: relation.columns[place].name) else { return false }
                return !columns[slot].isSure(at: moment)
            })
    }

    /// True if the remembered rows of the table may be others.
    fileprivate func isReadOtherwise(than before: CatalogTable?) -> Bool {
        guard let before, before !== self else { return false }
        return turningPoints != before.turningPoints || columns.map(\.name) != before.columns.map(\.name)
    }
}

extension CatalogColumn {
    /// Whether a stored column is this one, with values of the same type.
    public func isSame(as column: Column) -> Bool { column.name == name && column.typeOID == typeOID }
}

extension CatalogTable {
    /// Whether rows of the schema are rows of the table as it is: each column by name and type.
    func has(_ relation: Relation) -> Bool {
        relation.schema == schema && relation.name == name && relation.columns.allSatisfy(has)
    }

    /// The schema with what is sure to be in old images, whichever partition the row was in.
    func surelyOld(_ relation: Relation) -> Relation {
        var sure = relation
        let keepsKey = identity == .primaryKey
        sure.identity = keepsKey ? .primaryKey : .nothing
        for place in sure.columns.indices {
            let isKey = primaryKey.contains { columns[$0].name == sure.columns[place].name }
            sure.columns[place].isIdentity = keepsKey && isKey
        }
        return sure
    }

    private func has(_ column: Column) -> Bool {
        slot(named: column.name).map { columns[$0].isSame(as: column) } ?? false
    }

    /// The places of columns that rows of the schema have and the table, as it is, has not: a value of another type says
    /// nothing about this one.
    func foreignColumns(of relation: Relation) -> Set<Int> {
        Set(relation.columns.indices.filter { !has(relation.columns[$0]) })
    }
}
