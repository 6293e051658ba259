import Bytes
import Catalog
import Change
import Diagnostics
import Judging
import Matching
import Policy

/// Index that finds the membership sets to which a row adds or removes a key. Each set is a predicate over its table,
/// so the index works like the one for subscriptions.
struct MembershipIndex: ~Copyable {
    private struct Handles {
        var arrival: PredicateIndex.Handle
        var departure: PredicateIndex.Handle
    }

    /// Effect that a change of the membership's table has on a set.
    enum Effect {
        /// The change adds (1) or removes (-1) a row with this key.
        case row(set: UInt32, key: [UInt8]?, Int)
        /// The change lacks the values that would show its effect on the set.
        case unreadable(set: UInt32)
        case truncated(table: UInt32?)
    }

    private var handles: [UInt32: Handles] = [:]
    private var tables: [UInt32: CatalogTable] = [:]
    /// Index that finds sets by the new row of a change.
    private var arrivals = PredicateIndex(maximumRelations: Limits.maximumCachedRelations)
    /// Index that finds sets by the old row of a change.
    private var departures = PredicateIndex(judging: .oldAsKnown, maximumRelations: Limits.maximumCachedRelations)
    private var arrived = MatchBatch()
    private var departed = MatchBatch()

    // MARK: Sets

    func has(_ set: MembershipSet) -> Bool { handles[set.number] != nil }

    /// Adds a set, so that changes of its table are found for it.
    mutating func add(_ set: MembershipSet) {
        let (table, rows) = (set.table.oid, set.held.rows)
        assert(!has(set), "a set is listed once")
        precondition(tables[table].map { set.stands(on: $0) } ?? false, "a set is read by its table's own columns")
        handles[set.number] = Handles(
            arrival: arrivals.add(
                table: table, operations: [.insert, .update], predicate: rows, member: set.number),
            departure: departures.add(
                table: table, operations: [.update, .delete], predicate: rows, member: set.number))
    }

    mutating func remove(_ set: MembershipSet) {
        guard let handles = handles.removeValue(forKey: set.number) else { return }
        arrivals.remove(handles.arrival)
        departures.remove(handles.departure)
    }

    /// Replaces the table's columns in the index. Returns true if they changed: the caller must then add the table's
    /// sets again.
    mutating func declare(_ table: CatalogTable) -> Bool {
        let known = tables[table.oid]
        if known === table { return false }
        tables[table.oid] = table
        let columns = table.columns.map(\.name)
        if let known, known.columns.map(\.name) == columns { return false }
        arrivals.declare(table: table.oid, columns: columns)
        departures.declare(table: table.oid, columns: columns)
        return known != nil
    }

    mutating func noteRelation(_ fingerprint: UInt64, _ relation: Relation, foreign: Set<Int>) {
        arrivals.noteRelation(fingerprint, relation, foreign: foreign)
        departures.noteRelation(fingerprint, relation, foreign: foreign)
    }

    mutating func forgetRelations() {
        arrivals.forgetRelations()
        departures.forgetRelations()
    }

    // MARK: Changes

    /// Adds to `effects` what the remaining changes of a part do to the sets. If a schema is unknown, stops there and
    /// returns its fingerprint: the caller then calls `noteRelation` and calls this again.
    @_lifetime(part: copy part)
    mutating func gather(
        _ part: inout TransactionPart, _ schemas: SchemaRegistry, _ sets: Slots<MembershipSet>,
        into effects: inout [Effect]
    ) throws(ByteError) -> UInt64? {
        while true {
            var forArrivals = part
            var forDepartures = part
            let outcome = try arrivals.match(&forArrivals, into: &arrived)
            _ = try departures.match(&forDepartures, into: &departed)
            for place in 0..<arrived.changeCount {
                guard let change = try part.next() else { break }
                if change.isForgotten {
                    effects += Self.forgotten(schemas.relation(change.relation)?.oid, sets)
                } else if change.operation == .truncate {
                    effects.append(.truncated(table: schemas.relation(change.relation)?.oid))
                } else if hasMatches(at: place), let relation = schemas.relation(change.relation) {
                    try gather(change, relation, at: place, sets, into: &effects)
                }
            }
            if case .unknownRelation(let fingerprint) = outcome { return fingerprint }
            if arrived.changeCount == 0 { return nil }
        }
    }

    /// Returns an `unreadable` effect for each set of the table, so that it is filled again, because the values of one
    /// of the table's changes were removed from the log.
    private static func forgotten(_ table: UInt32?, _ sets: Slots<MembershipSet>) -> [Effect] {
        sets.indices.filter { sets[$0]?.held.membership.table == table }.map { .unreadable(set: $0) }
    }

    private func hasMatches(at place: Int) -> Bool {
        !arrived.certain(of: place).isEmpty || !departed.certain(of: place).isEmpty
            || !arrived.asking(of: place).isEmpty || !departed.asking(of: place).isEmpty
    }

    /// Adds to `effects` what one change does to the sets, removed rows before added ones. The effects of a row that
    /// stays in a set then cancel out.
    private func gather(
        _ change: borrowing Change, _ relation: Relation, at place: Int, _ sets: Slots<MembershipSet>,
        into effects: inout [Effect]
    ) throws(ByteError) {
        for node in 0..<departed.certain(of: place).count {
            for set in Self.sets(departures, departed.certain(of: place), node, sets) {
                effects.append(try effect(set, -1, change, relation, .old))
            }
        }
        for node in 0..<arrived.certain(of: place).count {
            for set in Self.sets(arrivals, arrived.certain(of: place), node, sets) {
                effects.append(try effect(set, 1, change, relation, .new))
            }
        }
        for node in 0..<departed.asking(of: place).count {
            for set in Self.sets(departures, departed.asking(of: place), node, sets) {
                effects.append(.unreadable(set: set.number))
            }
        }
        for node in 0..<arrived.asking(of: place).count {
            for set in Self.sets(arrivals, arrived.asking(of: place), node, sets) {
                effects.append(.unreadable(set: set.number))
            }
        }
    }

    private func effect(
        _ set: MembershipSet, _ count: Int, _ change: borrowing Change, _ relation: Relation, _ image: RowTexts.Image
    ) throws(ByteError) -> Effect {
        guard let slot = set.held.membership.keySlot else { return .row(set: set.number, key: nil, count) }
        switch try RowTexts.value(of: set.keyColumn(slot), in: change, relation, image) {
        case .text(let key): return .row(set: set.number, key: key, count)
        case .null: return .row(set: set.number, key: nil, count)
        case .absent: return .unreadable(set: set.number)
        }
    }

    private static func sets(
        _ index: borrowing PredicateIndex, _ nodes: Span<MatchedNode>, _ node: Int, _ sets: Slots<MembershipSet>
    ) -> [MembershipSet] {
        let members = index.members(of: nodes, at: node)
        var found: [MembershipSet] = []
        for place in members.indices { if let set = sets[members[place]] { found.append(set) } }
        return found
    }
}
