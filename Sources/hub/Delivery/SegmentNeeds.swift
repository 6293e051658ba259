import Bytes
import Catalog
import Change
import EventLog
import Policy

/// Segments of the log that the bindings of one pipeline need, so that the pipeline can skip the others.
///
/// A segment lists its tables and hashes of its rows' primary keys; different keys can have the same hash. A segment is
/// useless if every binding needs other tables, or single rows whose key hashes the segment lacks.
struct SegmentNeeds {
    /// Changes that one binding needs from the log.
    private enum Need {
        /// The binding needs any change of the table.
        case table
        /// The binding needs only changes of rows whose primary key, this column, has one of the values.
        case rows(CatalogColumn, [[UInt8]])
    }

    private enum Wanted {
        case table
        case rows(CatalogColumn, Set<[UInt8]>)
    }

    /// Maximum number of single rows of a table. Looking for more rows would take longer than reading the segment.
    private static let maximumRows = 4096

    /// Need of each binding by its member number, with the table's OID.
    private var needs: [UInt32: (table: UInt32, Need)] = [:]
    /// Needs of all bindings together, by table; nil if they must be computed again.
    private var wanted: [UInt32: Wanted]?

    mutating func add(_ member: UInt32, _ table: CatalogTable, _ predicate: Predicate) {
        wanted = nil
        switch predicate.access {
        case .never: needs[member] = nil
        case .anyOf(let keys): needs[member] = (table.oid, Self.rows(table, keys) ?? .table)
        case .always, .within, .scan: needs[member] = (table.oid, .table)
        }
    }

    mutating func remove(_ member: UInt32) {
        if needs.removeValue(forKey: member) != nil { wanted = nil }
    }

    private static func rows(_ table: CatalogTable, _ keys: [EqualityKey]) -> Need? {
        guard table.primaryKey.count == 1, let slot = table.primaryKey.first,
            // Equal values must have equal texts, because the segment lists hashes of texts.
            keys.allSatisfy({ $0.slot == slot && $0.part == .whole && $0.form == .asIs })
        else { return nil }
        return .rows(table.columns[slot], keys.map(\.bytes))
    }

    private func gathered() -> [UInt32: Wanted] {
        var all: [UInt32: Wanted] = [:]
        for (table, need) in needs.values {
            switch (all[table], need) {
            case (.table?, _): continue
            case (nil, .rows(let column, let values)): all[table] = .rows(column, Set(values))
            case (.rows(let column, let known)?, .rows(let other, let values)) where column.isSame(as: other):
                all[table] = .rows(column, known.union(values))
            case (_, .table), (.rows?, .rows): all[table] = .table
            }
            if case .rows(_, let values)? = all[table], values.count > Self.maximumRows { all[table] = .table }
        }
        return all
    }

    /// True if no binding needs anything in the segment. If the contents are not known, returns false.
    mutating func isUseless(_ segment: SealedSegment) -> Bool {
        // Gaps and catalog marks concern every client. Kinds of entries that this program does not know may also
        // concern them.
        guard segment.kinds.hasOnly(.transaction, .relation, .progress, .presence, .ledger),
            !segment.mayContain(MessageTable.key)
        else { return false }
        let wanted = wanted ?? gathered()
        self.wanted = wanted
        return segment.relations.allSatisfy { payload in
            guard let relation = try? RelationCodec.decode(payload.asBytes) else { return false }
            guard let rows = wanted[relation.oid] else { return true }
            guard case .rows(let column, let values) = rows else { return false }
            return Self.lacks(segment, values, of: column, relation)
        }
    }

    private static func lacks(
        _ segment: SealedSegment, _ values: Set<[UInt8]>, of column: CatalogColumn, _ relation: Relation
    ) -> Bool {
        // When the segment was written, the table may have had another key or a key of another type.
        let key = relation.keyColumns
        guard key.count == 1, column.isSame(as: relation.columns[key[0]]) else { return false }
        let table = RowKey.table(schema: relation.schema, name: relation.name)
        if segment.mayContain(RowKey.unkeyed(table: table)) { return false }
        return values.allSatisfy { value in
            var hash = RowKey.row(table: table)
            hash.combine(value.asBytes)
            return !segment.mayContain(hash.value)
        }
    }
}

extension CatalogColumn {
    fileprivate func isSame(as other: CatalogColumn) -> Bool { name == other.name && typeOID == other.typeOID }
}
