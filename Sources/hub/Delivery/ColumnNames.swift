import Catalog
import Change

/// Ranges of PostgreSQL's WAL positions within which names and labels in stored rows have one meaning. A range ends
/// where definitions changed, or at the first position by which the hub is sure that they did not change.
struct DefinitionEras {
    private let points: [LSN]

    init(_ tables: some Sequence<CatalogTable>) {
        points = tables.reduce(into: Set<LSN>()) { $0.formUnion($1.turningPoints) }.sorted()
    }

    /// Returns the index of the range in which a transaction was committed.
    func number(at lsn: LSN) -> Int {
        // Nearly all transactions are in the last range.
        if let last = points.last, lsn > last { return points.count }
        return points.firstIndex { lsn <= $0 } ?? 0
    }
}

extension Relation {
    /// Returns the schema with the current names of its columns. A dropped column, or one that the hub cannot identify,
    /// gets a name that no column has.
    func renamed(_ identities: ColumnIdentities, in table: CatalogTable, _ fingerprint: UInt64) -> Relation {
        var renamed = self
        var hasUnknownKey = false
        for (place, identity) in identities.places.enumerated() {
            switch identity {
            case .column(let slot): renamed.columns[place].name = table.columns[slot].name
            case .dropped, .unknown:
                renamed.columns[place].name = "\0\(fingerprint).\(place)"
                if columns[place].isIdentity { hasUnknownKey = true }
            }
        }
        // Part of a key does not identify rows, so it must not serve as key.
        if hasUnknownKey, identity != .full {
            renamed.identity = .nothing
            for place in columns.indices { renamed.columns[place].isIdentity = false }
        }
        if hasUnknownKey { for place in columns.indices { renamed.columns[place].isPrimaryKey = false } }
        return renamed
    }
}
