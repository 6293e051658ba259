import Catalog
import Change

/// Stretches of PostgreSQL's log in which stored rows mean the same: between two positions at which definitions changed, or at
/// which it became certain that they have not changed since.
struct DefinitionEras {
    private let points: [LSN]

    init(_ tables: some Sequence<CatalogTable>) {
        points = tables.reduce(into: Set<LSN>()) { $0.formUnion($1.turningPoints) }.sorted()
    }

    /// The number of the era in which a transaction was committed.
    func number(at lsn: LSN) -> Int {
        // Almost always the last one.
        if let last = points.last, lsn > last { return points.count }
        return points.firstIndex { lsn <= $0 } ?? 0
    }
}

extension Relation {
    /// The schema with the names that its columns have now. A column that is no longer there, or of which nobody knows which
    /// it is, gets a name that no column has.
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
        // What does not tell rows apart must not be taken for what does.
        if hasUnknownKey, identity != .full {
            renamed.identity = .nothing
            for place in columns.indices { renamed.columns[place].isIdentity = false }
        }
        if hasUnknownKey { for place in columns.indices { renamed.columns[place].isPrimaryKey = false } }
        return renamed
    }
}
