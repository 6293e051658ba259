import Catalog
import Change

/// Ranges of PostgreSQL's log in which stored rows have one meaning. A range ends where definitions changed, or where
/// it became certain that they had not changed.
struct DefinitionEras {
    private let points: [LSN]

    init(_ tables: some Sequence<CatalogTable>) {
        points = tables.reduce(into: Set<LSN>()) { $0.formUnion($1.turningPoints) }.sorted()
    }

    /// Returns the number of the era in which a transaction was committed.
    func number(at lsn: LSN) -> Int {
        // The last era is almost always the right one.
        if let last = points.last, lsn > last { return points.count }
        return points.firstIndex { lsn <= $0 } ?? 0
    }
}

extension Relation {
    /// Returns the schema with the present names of its columns. A column that no longer exists, or that cannot be
    /// identified, gets a name that no column has.
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
        // An incomplete key does not identify rows, so it must not be used as one.
        if hasUnknownKey, identity != .full {
            renamed.identity = .nothing
            for place in columns.indices { renamed.columns[place].isIdentity = false }
        }
        if hasUnknownKey { for place in columns.indices { renamed.columns[place].isPrimaryKey = false } }
        return renamed
    }
}
