import Bytes
import Catalog
import Change
import Messages

/// Schemas of the log's rows, compared with the tables that the catalog knows.
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
    /// Catalog snapshot by which policies are judged.
    private var catalog: CatalogSnapshot?
    private var eras = DefinitionEras([])
    private var era = 0
    /// Position of the current transaction; zero if the log's positions are of another history.
    private var moment = LSN.zero
    private var segment: UInt64 = 0
    private var declared: [UInt32: Declaration] = [:]
    private var lastDeclaration: UInt64 = 0
    /// True if a table was declared in place of another. Bindings to the former table receive nothing.
    private var hasReplaced = false
    /// Tables, as the catalog has them, whose partitions keep less of old rows than the schemas of their changes say.
    private var mixed: [UInt32: CatalogTable] = [:]
    /// Schemas of tables in `mixed`, with only the identity that their old images are sure to have.
    private var doubted: [UInt64: Relation] = [:]
    /// Columns of schemas known to the router that have other types now.
    private var foreign: [UInt64: ForeignColumns] = [:]
    /// Schemas for which the catalog is being read again.
    private var asked: Set<UInt64> = []
    /// Layouts of the schemas whose rows are messages to topics.
    private(set) var messages = MessageLayouts()

    /// Enters a segment, and forgets the schemas of older ones: each segment has all schemas that it needs. True if
    /// schemas were forgotten, so that other readers of schemas must be told of them again.
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

    /// Returns a stored schema as it must be read at the current transaction.
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

    /// Returns the definitions for reading earlier rows of the tables, by their meaning at the current transaction.
    func lookback(_ tables: some Sequence<UInt32>) -> RecallRequest.Reading {
        let known = Dictionary(tables.compactMap { table in self.table(table).map { (table, $0) } }) { first, _ in first
        }
        return RecallRequest.Reading(tables: known, moment: moment)
    }

    /// True if the table's rows at the current transaction may differ from the log's earlier versions of them.
    func isBroken(_ oid: UInt32) -> Bool { !(table(oid)?.publishedSince.isBehind(moment) ?? true) }

    func relation(_ fingerprint: UInt64) -> Relation? { doubted[fingerprint] ?? relations[fingerprint] }

    /// Returns the schema of a change, which the log has before it.
    func relation(of fingerprint: UInt64) throws(ByteError) -> Relation {
        guard let relation = relation(fingerprint) else {
            throw ByteError(expected: "the schema of each change before it", offset: 0)
        }
        return relation
    }

    /// Returns the given tables that have rows in a part of a transaction.
    func tables(of payload: RawSpan, among tables: Set<UInt32>) throws(ByteError) -> Set<UInt32> {
        if tables.isEmpty { return [] }
        var found: Set<UInt32> = []
        var part = try TransactionPart(payload)
        while found.count < tables.count, let change = try part.next() {
            guard change.relation != 0 else { continue }
            let table = try relation(of: change.relation).oid
            if tables.contains(table) { found.insert(table) }
        }
        return found
    }

    /// Schemas whose changes contain less of their old rows than they claim.
    var doubtedSchemas: [UInt64] { doubted.isEmpty ? [] : doubted.keys.sorted() }

    /// True if changes of the schema can be judged. False if the catalog must be read again first. This happens once
    /// for each schema and snapshot, because a row that is older than the catalog stays different.
    mutating func isReady(
        _ fingerprint: UInt64, _ relation: Relation, _ snapshot: CatalogSnapshot?, _ router: inout ChangeRouter
    ) -> Bool {
        // The table must be the one by which holders are judged: a newer snapshot may exist that the loop has not heard
        // of.
        let table = table(relation.oid) ?? snapshot?.table(relation.oid) ?? snapshot?.followed(relation.oid)
        // Messages have a publication of their own, so it is normal that the clients' publication lacks their table.
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
        router.bindings.noteRelation(fingerprint, relation, foreign: places)
        return true
    }

    /// Returns the indices of columns whose stored values may have another meaning than they seem to have.
    func unsure(_ relation: Relation) -> Set<Int> {
        table(relation.oid)?.unsure(relation, at: moment) ?? []
    }

    /// Returns the columns of a schema that must be converted before anybody reads them; nil if there are none.
    func foreignColumns(_ fingerprint: UInt64) -> ForeignColumns? { foreign.isEmpty ? nil : foreign[fingerprint] }

    /// True if the log has the rows of the table as they are.
    func isRecallable(_ table: UInt32) -> Bool { declared[table]?.table.isRecallable ?? false }

    /// True if bindings to the table rely on whole old rows.
    func promisesWholeRows(_ table: UInt32) -> Bool { declared[table]?.table.identity == .full }

    /// Declares a table. Returns the declaration's number, by which `holds` checks that the index still has the
    /// declaration.
    mutating func declare(_ table: CatalogTable, _ router: inout ChangeRouter) -> UInt64 {
        if let known = declared[table.oid] {
            if known.table === table { return known.number }
            hasReplaced = true
        }
        assert(declared[table.oid]?.table !== table, "a table is declared once")
        lastDeclaration += 1
        declared[table.oid] = Declaration(table: table, number: lastDeclaration)
        router.bindings.declare(table: table.oid, columns: table.columns.map(\.name))
        if catalog?.related(table.oid) !== table {
            for (fingerprint, relation) in stored where relation.oid == table.oid { restate(fingerprint, relation) }
        }
        return lastDeclaration
    }

    /// True if a binding to the table exists or has existed.
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
            router.bindings.forget(table: oid)
        }
        restateAll()
        router.bindings.forgetRelations()
        if snapshot.tables.contains(where: { $0.isReadOtherwise(than: before?.table($0.oid)) }) { router.forgetRows() }
    }
}

extension CatalogTable {
    /// Returns the indices of columns whose values may have another meaning, in rows that were committed at this
    /// position.
    func unsure(_ relation: Relation, at moment: LSN) -> Set<Int> {
        Set(
            relation.columns.indices.filter { place in
                guard let slot = slot(named: relation.columns[place].name) else { return false }
                return !columns[slot].isSure(at: moment)
            })
    }

    /// True if remembered rows of the table may have changed their meaning.
    fileprivate func isReadOtherwise(than before: CatalogTable?) -> Bool {
        guard let before, before !== self else { return false }
        return turningPoints != before.turningPoints || columns.map(\.name) != before.columns.map(\.name)
    }
}

extension CatalogTable {
    /// True if rows of the schema are rows of the table as it is: each column matches by name and type.
    func has(_ relation: Relation) -> Bool {
        relation.schema == schema && relation.name == name && relation.columns.allSatisfy(has)
    }

    /// Returns the schema with the identity that old images are sure to have, in whichever partition the row was.
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

    /// Returns the indices of columns that the table does not have now, by name and type. A value of another type says
    /// nothing about the present column.
    func foreignColumns(of relation: Relation) -> Set<Int> {
        Set(relation.columns.indices.filter { !has(relation.columns[$0]) })
    }
}
