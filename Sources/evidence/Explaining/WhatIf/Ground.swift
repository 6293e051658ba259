import Catalog
import Change
import History
import Protocol

/// What stands behind a ruling's word on a change: by what a row is shown to somebody, or kept from him.
public enum Ground: Sendable, Hashable {
    /// Any of these shows it; or, of a row that is kept, these restrictive ones keep it.
    case policies([String])
    /// None of the policies shows it.
    case noPolicy
    /// Row security does not bind the role.
    case open
    /// The role may not read the table's key.
    case unreadable
    /// Policies show it, and it is not what he asks for.
    case notAskedFor
    /// The table, or what was done to it, is not in the publication.
    case unpublished
    /// What one policy or another says does not come to it: PostgreSQL refuses the role any query.
    case refused
    /// There are too many policies, or rows that only PostgreSQL could have judged by each of them.
    case unknown
}

/// A ruling, and the changes that it tells.
struct RuledChanges {
    let ruling: Ruling
    let told: ToldChanges

    func of(_ table: TableName, _ holder: Int) -> OfTable {
        let number = ruling.places[Ruling.Place(holder: holder, schema: table.schema, table: table.name)]
        return OfTable(
            pair: number.map { ruling.pairs[$0] },
            isPublished: ruling.view.snapshot.table(table.schema, table.name) != nil, told: told, holder: holder)
    }

    /// What it says to one holder of one table.
    struct OfTable {
        fileprivate let pair: Ruling.Pair?
        fileprivate let isPublished: Bool
        fileprivate let told: ToldChanges
        fileprivate let holder: Int

        /// Which of several policies show the change's row: a bit for each in their order.
        func shown(at offset: UInt64) -> UInt32 {
            guard let pair else { return 0 }
            let places = pair.parts.indices.lowerBound..<pair.partOfAll + (pair.bindings == nil ? 0 : 1)
            return places.reduce(0) {
                told.shows(offset, to: holder, part: $1) ? $0 | 1 << UInt32($1) : $0
            }
        }

        /// Why the holder is told of a change, or not.
        func ground(_ operation: Operation, _ shown: UInt32, isTold: Bool) -> Ground {
            guard let pair else { return isPublished ? .unreadable : .unpublished }
            guard pair.table.operations.contains(RowOperations(operation)) else { return .unpublished }
            if !isTold, pair.bindings != nil, shown >> UInt32(pair.partOfAll) & 1 == 1 { return .notAskedFor }
            guard let policy = pair.policy else { return .open }
            if policy.parts.count <= 1 { return isTold ? .policies(policy.parts.map(\.name)) : .noPolicy }
            if pair.parts.isEmpty { return .unknown }
            let parts = pair.parts.map(\.part)
            let showing = parts.indices.filter { parts[$0].isPermissive && shown >> UInt32($0) & 1 == 1 }
            if isTold { return showing.isEmpty ? .unknown : .policies(showing.map { parts[$0].name }) }
            if showing.isEmpty { return .noPolicy }
            let keeping = parts.indices.filter { !parts[$0].isPermissive && shown >> UInt32($0) & 1 == 0 }
            return keeping.isEmpty ? .refused : .policies(keeping.map { parts[$0].name })
        }
    }
}
