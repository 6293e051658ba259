import Catalog
import Change
import History
import Protocol

/// Reason why the policies of one catalog show a row to a holder, or hide it.
public enum RulingReason: Sendable, Hashable {
    /// Names of the policies of which each alone shows the row; for a hidden row, of the restrictive policies that hide
    /// it.
    case policies([String])
    /// No policy shows the row.
    case noPolicy
    /// Row security does not apply to the role.
    case open
    /// The role may not read the table's key.
    case unreadable
    /// Policies show the row, but the holder has no subscription that includes it.
    case notAskedFor
    /// The table, or the change's operation, is not in the publication.
    case unpublished
    /// PostgreSQL refuses every query of the role on the table, so the result of a single policy does not matter.
    case refused
    /// The reason is unknown: too many policies, or too many rows that only PostgreSQL could have evaluated by each
    /// policy.
    case unknown
}

/// Policies of one catalog, with the changes that they show to each holder.
struct RuledChanges {
    let ruling: Ruling
    let told: ToldChanges

    /// Returns the result for one table and one holder.
    func of(_ table: TableName, _ holder: Int) -> OfTable {
        let number = ruling.places[Ruling.Place(holder: holder, schema: table.schema, table: table.name)]
        assert(number.map { ruling.pairs[$0].holder == holder } ?? true, "a pair is found by its own holder")
        return OfTable(
            pair: number.map { ruling.pairs[$0] },
            isPublished: ruling.view.snapshot.table(table.schema, table.name) != nil, told: told, holder: holder)
    }

    /// Policies and shown changes of one holder in one table.
    struct OfTable {
        fileprivate let pair: Ruling.Pair?
        fileprivate let isPublished: Bool
        fileprivate let told: ToldChanges
        fileprivate let holder: Int

        /// True if the role may read the table's primary key.
        var isReadable: Bool { pair != nil }

        /// Names of the columns that the holder's bindings deliver.
        var delivered: Set<String> {
            guard let pair else { return [] }
            return Set((pair.bindings ?? []).flatMap { $0.delivered.map { pair.table.columns[$0].name } })
        }

        /// Returns which of the table's policies show the change's row: one bit for each policy, in their order.
        func shown(at offset: UInt64) -> UInt32 {
            guard let pair else { return 0 }
            let places = pair.parts.indices.lowerBound..<pair.partOfAll + (pair.bindings == nil ? 0 : 1)
            assert(places.upperBound <= UInt32.bitWidth, "each policy has a bit of its own")
            return places.reduce(0) {
                told.shows(offset, to: holder, part: $1) ? $0 | 1 << UInt32($1) : $0
            }
        }

        /// Returns the reason why the holder receives a change, or does not.
        func ground(_ operation: Operation, _ shown: UInt32, isTold: Bool) -> RulingReason {
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
