import Bytes
import Change
import Matching

/// Which schemas the log's rows have, and whether the catalog knows them as they are.
struct SchemaDesk {
    private var relations: [UInt64: Relation] = [:]
    private var declared: [UInt32: CatalogTable] = [:]
    /// Schemas for which the catalog is being read again.
    private var asked: Set<UInt64> = []

    mutating func learn(_ payload: RawSpan) throws(ByteError) {
        let fingerprint = RelationCodec.fingerprint(of: payload)
        guard relations[fingerprint] == nil else { return }
        relations[fingerprint] = try RelationCodec.decode(payload)
    }

    func relation(_ fingerprint: UInt64) -> Relation? { relations[fingerprint] }

    /// Whether changes of the schema can be judged; false where the catalog has to be read again first. It is read once
    /// for each schema and snapshot: a row that is older than the catalog stays another than it says.
    mutating func isReady(
        _ fingerprint: UInt64, _ relation: Relation, _ snapshot: CatalogSnapshot?, _ index: inout PredicateIndex
    ) -> Bool {
        let isKnown = snapshot?.table(relation.oid).map { $0.has(relation) } ?? false
        guard isKnown || asked.contains(fingerprint) else {
            asked.insert(fingerprint)
            return false
        }
        asked.remove(fingerprint)
        index.noteRelation(fingerprint, relation)
        return true
    }

    mutating func declare(_ table: CatalogTable, _ index: inout PredicateIndex) {
        guard declared[table.oid] !== table else { return }
        declared[table.oid] = table
        index.declare(table: table.oid, columns: table.columns.map(\.name))
    }

    mutating func take(_ snapshot: CatalogSnapshot, _ index: inout PredicateIndex) {
        for (oid, table) in declared where snapshot.table(oid) !== table {
            declared[oid] = nil
            index.forget(table: oid)
        }
    }
}

extension CatalogTable {
    /// Whether rows of the schema are rows of the table as it is: each column by name and type.
    func has(_ relation: Relation) -> Bool {
        guard relation.schema == schema, relation.name == name else { return false }
        return relation.columns.allSatisfy { column in
            guard let slot = slot(named: column.name) else { return false }
            return columns[slot].typeName == column.typeName
        }
    }
}
