import Bytes
import Catalog
import Change
import Messages

/// Schemas of the log's rows, with their relation to the tables in the catalog.
struct SchemaRegistry {
    private struct Declaration {
        let table: CatalogTable
        let number: UInt64
    }

    /// Schemas as the log stores them, by fingerprint.
    private var stored: [UInt64: Relation] = [:]
    /// Schemas with the current names of their columns, by fingerprint.
    private var relations: [UInt64: Relation] = [:]
    private var identities: [UInt64: ColumnIdentities] = [:]
    /// Snapshot whose policies apply on the loop.
    private var catalog: CatalogSnapshot?
    /// Ranges of WAL positions within which names and labels have one meaning.
    private var eras = DefinitionEras([])
    /// Index in `eras` of the range that contains the current transaction.
    private var era = 0
    /// WAL position of the current transaction; zero if the log's positions belong to another history.
    private var moment = LSN.zero
    private var segment: UInt64 = 0
    private var declared: [UInt32: Declaration] = [:]
    private var lastDeclaration: UInt64 = 0
    /// True if a table was declared again with other columns. Bindings to the earlier declaration receive nothing.
    private var hasReplaced = false
    /// Tables whose partitions log less of old rows than the schemas of their changes state.
    private var mixed: [UInt32: CatalogTable] = [:]
    /// Schemas of the tables in `mixed`, reduced to the identity that their old images surely have.
    private var doubted: [UInt64: Relation] = [:]
    /// Columns, by schema, whose stored type differs from the current type.
    private var foreign: [UInt64: ForeignColumns] = [:]
    /// Fingerprints of the schemas for which the catalog is being read again.
    private var asked: Set<UInt64> = []
    /// Layouts of schemas whose rows are messages to topics.
    private(set) var messages = MessageLayouts()

    /// Enters a segment and forgets the schemas of the previous one: each segment contains all schemas that it needs.
    /// Returns true if the segment is another one; the caller then forgets what it derived from schemas.
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

    /// Returns a stored schema with the column names that apply to the current transaction, and the current column for
    /// each of its columns if the table is known.
    func read(_ relation: Relation, _ fingerprint: UInt64) -> (relation: Relation, identities: ColumnIdentities?) {
        guard let table = table(relation.oid) else { return (relation, nil) }
        let identities = ColumnIdentities(of: relation, in: table, at: moment)
        return (relation.renamed(identities, in: table, fingerprint), identities)
    }

    private func table(_ oid: UInt32) -> CatalogTable? { declared[oid]?.table ?? catalog?.related(oid) }

    /// Begins a transaction. Returns true if names or labels mean something else than in the previous transaction.
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

    /// Returns the definitions with which to read earlier rows of the tables, as they apply to the current transaction.
    func lookback(_ tables: some Sequence<UInt32>) -> RecallRequest.Reading {
        let known = Dictionary(tables.compactMap { table in self.table(table).map { (table, $0) } }) { first, _ in first
        }
        return RecallRequest.Reading(tables: known, moment: moment)
    }

    /// True if rows of the table may have changed before the current transaction without an entry in the log.
    func isBroken(_ oid: UInt32) -> Bool { !(table(oid)?.publishedSince.isBehind(moment) ?? true) }

    func relation(_ fingerprint: UInt64) -> Relation? { doubted[fingerprint] ?? relations[fingerprint] }

    /// Returns the schema of a change. The log must contain it before the change.
    func relation(of fingerprint: UInt64) throws(ByteError) -> Relation {
        guard let relation = relation(fingerprint) else {
            throw ByteError(expected: "the schema of each change before it", offset: 0)
        }
        return relation
    }

    /// Returns those of the given tables that have changes in a part of a transaction.
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

    /// Schemas whose changes contain less of old rows than they state.
    var doubtedSchemas: [UInt64] { doubted.isEmpty ? [] : doubted.keys.sorted() }

    /// Returns true if changes of the schema can be matched. Returns false once for each schema and snapshot that
    /// differ: the caller must then read the catalog again.
    mutating func isReady(
        _ fingerprint: UInt64, _ relation: Relation, _ snapshot: CatalogSnapshot?, _ router: inout ChangeRouter
    ) -> Bool {
        // The loop's own snapshot comes first: `snapshot` may be newer than the one that the loop has received.
        let table = table(relation.oid) ?? snapshot?.table(relation.oid) ?? snapshot?.followed(relation.oid)
        // Messages have their own publication, so the clients' publication normally lacks their table.
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

    /// Returns the indices of columns whose stored values may have had another meaning.
    func unsure(_ relation: Relation) -> Set<Int> {
        table(relation.oid)?.unsure(relation, at: moment) ?? []
    }

    /// Returns the columns of a schema whose values must be converted to their current types before use; nil if there
    /// are none.
    func foreignColumns(_ fingerprint: UInt64) -> ForeignColumns? { foreign.isEmpty ? nil : foreign[fingerprint] }

    /// True if the log contains whole current rows of the table.
    func isRecallable(_ table: UInt32) -> Bool { declared[table]?.table.isRecallable ?? false }

    /// True if clients of the table were promised whole old rows.
    func promisesWholeRows(_ table: UInt32) -> Bool { declared[table]?.table.identity == .full }

    /// Declares a table's current columns to the indexes of bindings. Returns the declaration's number, by which
    /// `holds` recognizes it.
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

    /// True if some binding is or was on the table.
    func isDeclared(_ table: UInt32) -> Bool { declared[table] != nil }

    /// True if the table's declaration in the indexes of bindings still has this number.
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
    /// Returns the indices of columns whose values may have had another meaning in rows committed at this position.
    func unsure(_ relation: Relation, at moment: LSN) -> Set<Int> {
        Set(
            relation.columns.indices.filter { place in
                guard let slot = slot(named: relation.columns[place].name) else { return false }
                return !columns[slot].isSure(at: moment)
            })
    }

    /// True if remembered rows of the table may have to be read differently than before.
    fileprivate func isReadOtherwise(than before: CatalogTable?) -> Bool {
        guard let before, before !== self else { return false }
        return turningPoints != before.turningPoints || columns.map(\.name) != before.columns.map(\.name)
    }
}

extension CatalogTable {
    /// True if the table still has each column of the schema, with the same name and type.
    func has(_ relation: Relation) -> Bool {
        relation.schema == schema && relation.name == name && relation.columns.allSatisfy(has)
    }

    /// Returns the schema with the identity that old images surely have, whichever partition the row was in.
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

    /// Returns the indices of columns that the table does not have now with the same name and type.
    func foreignColumns(of relation: Relation) -> Set<Int> {
        Set(relation.columns.indices.filter { !has(relation.columns[$0]) })
    }
}
