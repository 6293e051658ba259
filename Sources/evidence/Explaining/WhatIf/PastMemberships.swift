import Bytes
import Catalog
import Change
import Diagnostics
import EventLog
import History
import Judging
import Matching
import Policy

/// Memberships of a `Ruling` (policies of one catalog for some holders) at each position of a window. They are computed
/// back from the present ones by the changes in the log, and then forward again.
struct PastMemberships: ~Copyable {
    /// Keys of one holder's membership, with the number of rows that give each key.
    private struct Keys {
        var counts: [[UInt8]: Int] = [:]
        var nulls = 0
        var rows = 0
        /// True if only PostgreSQL can compute the keys, and it can do so only for the present.
        var isUnknown = false
        var hasFailed = false

        mutating func add(_ key: [UInt8]?, _ change: Int, hasKey: Bool) {
            rows += change
            guard hasKey else { return }
            guard let key else {
                nulls += change
                return
            }
            let count = (counts[key] ?? 0) + change
            counts[key] = count == 0 ? nil : count
        }

        var isSound: Bool { rows >= 0 && nulls >= 0 && counts.values.allSatisfy { $0 > 0 } }

        var forPredicates: MembershipKeys {
            MembershipKeys(
                keys: counts.keys.sorted { $0.lexicographicallyPrecedes($1) }, hasNull: nulls > 0, hasRows: rows > 0,
                hasFailed: hasFailed, isUnknown: isUnknown)
        }
    }

    private var keys: [Keys]
    let sets: [Ruling.Members]
    /// Predicate index for the rows after changes.
    private var arrivals: PredicateIndex
    /// Predicate index for the rows before changes.
    private var departures: PredicateIndex
    private var arrived = MatchBatch()
    private var departed = MatchBatch()
    private var schemas: WindowSchemas
    /// Indexes of the sets whose past keys could not be computed, so that they keep their present keys.
    private var frozen: Set<Int> = []
    /// True if such sets count as unknown; false if their present keys count.
    private let isStrict: Bool

    init(_ sets: [Ruling.Members], _ snapshot: CatalogSnapshot, lost: Masking?, isStrict: Bool = false) {
        self.sets = sets
        self.isStrict = isStrict
        schemas = WindowSchemas(snapshot, alsoRelated: true, lost: lost)
        // Built in local variables first: a new index must be complete before it is stored.
        var arrivals = PredicateIndex(maximumRelations: Limits.maximumCachedRelations)
        var departures = PredicateIndex(judging: .oldAsKnown, maximumRelations: Limits.maximumCachedRelations)
        keys = sets.map { Self.keys($0.fill, hasKey: $0.held.membership.keySlot != nil) }
        for (number, set) in sets.enumerated() {
            guard let table = set.table else { continue }
            if !arrivals.isDeclared(table: table.oid) {
                arrivals.declare(table: table.oid, columns: table.columns.map(\.name))
                departures.declare(table: table.oid, columns: table.columns.map(\.name))
            }
            _ = arrivals.add(
                table: table.oid, operations: [.insert, .update], predicate: set.held.rows, member: UInt32(number))
            _ = departures.add(
                table: table.oid, operations: [.update, .delete], predicate: set.held.rows, member: UInt32(number))
        }
        self.arrivals = arrivals
        self.departures = departures
    }

    private static func keys(_ fill: MembershipFill, hasKey: Bool) -> Keys {
        var keys = Keys()
        switch fill {
        case .filled(let rows): for key in rows.keys { keys.add(key.text, key.count, hasKey: hasKey) }
        case .failed: keys.hasFailed = true
        case .unreadable, .unavailable: keys.isUnknown = true
        }
        return keys
    }

    var isEmpty: Bool { sets.isEmpty }

    /// Names of the tables whose rows are memberships in these sets.
    var tables: Set<TableName> {
        Set(sets.compactMap { $0.table.map { TableName(schema: $0.schema, name: $0.name) } })
    }

    func keys(of places: [Int]) -> [MembershipKeys] {
        places.map { place in
            var keys = keys[place].forPredicates
            if isStrict, !isKnown(place) { keys.isUnknown = true }
            return keys
        }
    }

    /// True if the keys of the set at this index are those at the current position, not the present ones.
    func isKnown(_ set: Int) -> Bool { !frozen.contains(set) && !keys[set].isUnknown }

    /// Gives up computing the past keys of all sets, because the log lacks changes of their tables.
    mutating func freeze() { frozen.formUnion(keys.indices) }

    // MARK: Back

    /// Undoes the effects of the logged changes after `offset`, in the part of the log from `start` on. Keeps the
    /// effects of the transaction `kept`. The present memberships, which PostgreSQL gave, include all these changes.
    mutating func takeBack(
        _ log: HistoryLog, to start: EventLogStart, from offset: UInt64, keeping kept: UInt32? = nil
    ) throws {
        guard !isEmpty else { return }
        let names = tables.map { RowKey.table(schema: $0.schema, name: $0.name) }
        var reader = try EventLogReader(directory: log.directory, from: start, matchingAnyOf: names)
        while try reader.next() {
            switch reader.entry.kind {
            case .relation: try schemas.learn(reader.payload)
            case .gap where reader.entry.offset > offset: freeze()
            case .transaction where reader.entry.offset + UInt64(reader.entry.changeCount) > offset:
                for effect in try effects(of: reader.payload) where effect.xid != kept { takeBack(effect) }
            default: break
            }
        }
        frozen.formUnion(keys.indices.filter { !keys[$0].isSound })
        for number in frozen {
            keys[number] = Self.keys(sets[number].fill, hasKey: sets[number].held.membership.keySlot != nil)
        }
    }

    private mutating func takeBack(_ effect: Effect) {
        guard case .filled(let filled) = sets[effect.set].fill, filled.snapshot.contains(effect.xid) else { return }
        guard case .row(let key, let change) = effect.what else {
            frozen.insert(effect.set)
            return
        }
        keys[effect.set].add(key, -change, hasKey: sets[effect.set].held.membership.keySlot != nil)
    }

    /// True if the past keys of all sets could be computed; sets that are unknown anyway do not count.
    var isExact: Bool { frozen.isEmpty }

    // MARK: Forward

    /// Stores a table's schema from the log, which later changes refer to.
    mutating func learn(_ schema: RawSpan) throws { try schemas.learn(schema) }

    /// Applies the effects of a transaction's part; returns the indexes of the sets that changed.
    mutating func apply(_ part: RawSpan) throws -> Set<Int> {
        var changed: Set<Int> = []
        for effect in try effects(of: part) where !frozen.contains(effect.set) {
            switch effect.what {
            case .row(let key, let change):
                keys[effect.set].add(key, change, hasKey: sets[effect.set].held.membership.keySlot != nil)
            case .truncate: keys[effect.set] = Keys()
            case .unreadable: keys[effect.set].isUnknown = true
            }
            changed.insert(effect.set)
        }
        return changed
    }

    // MARK: Effects of changes

    struct Effect {
        enum What {
            /// Change of the number of rows that give the key: 1 for a row that appears, -1 for a row that disappears.
            /// The key is nil if it is NULL.
            case row([UInt8]?, Int)
            case truncate
            /// The effect of the change cannot be read.
            case unreadable
        }

        var set: Int
        var xid: UInt32
        var what: What
    }

    /// Returns the effects of a transaction's part on the memberships.
    mutating func effects(of payload: RawSpan) throws -> [Effect] {
        var part = try TransactionPart(payload)
        let xid = part.xid
        var effects: [Effect] = []
        while true {
            var (forArrivals, forDepartures) = (part, part)
            let outcome = try arrivals.match(&forArrivals, into: &arrived)
            _ = try departures.match(&forDepartures, into: &departed)
            for place in 0..<arrived.changeCount {
                guard let change = try part.next() else { break }
                if change.isForgotten { forget(change.relation, xid, &effects) }
                if change.operation == .truncate { truncate(change.relation, xid, &effects) }
                try gather(change, at: place, xid, &effects)
            }
            if case .unknownRelation(let fingerprint) = outcome {
                let schema = try schemas.schema(fingerprint)
                arrivals.noteRelation(fingerprint, schema.relation, foreign: schema.foreign)
                departures.noteRelation(fingerprint, schema.relation, foreign: schema.foreign)
            } else if arrived.changeCount == 0 {
                return effects
            }
        }
    }

    private func truncate(_ fingerprint: UInt64, _ xid: UInt32, _ effects: inout [Effect]) {
        guard let schema = try? schemas.schema(fingerprint) else { return }
        for (number, set) in sets.enumerated() where set.table?.oid == schema.relation.oid {
            effects.append(Effect(set: number, xid: xid, what: .truncate))
        }
    }

    /// Marks the sets of a table as unreadable, because the content of a change was erased from the log and its effect
    /// is no longer known.
    private func forget(_ fingerprint: UInt64, _ xid: UInt32, _ effects: inout [Effect]) {
        guard let schema = try? schemas.schema(fingerprint) else { return }
        for (number, set) in sets.enumerated() where set.table?.oid == schema.relation.oid {
            effects.append(Effect(set: number, xid: xid, what: .unreadable))
        }
    }

    private mutating func gather(
        _ change: borrowing Change, at place: Int, _ xid: UInt32, _ effects: inout [Effect]
    ) throws {
        for node in 0..<departed.certain(of: place).count {
            let members = departures.members(of: departed.certain(of: place), at: node)
            for member in members.indices {
                effects.append(try effect(Int(members[member]), -1, change, xid, .old))
            }
        }
        for node in 0..<arrived.certain(of: place).count {
            let members = arrivals.members(of: arrived.certain(of: place), at: node)
            for member in members.indices {
                effects.append(try effect(Int(members[member]), 1, change, xid, .new))
            }
        }
        for node in 0..<departed.asking(of: place).count {
            let members = departures.members(of: departed.asking(of: place), at: node)
            for member in members.indices {
                effects.append(Effect(set: Int(members[member]), xid: xid, what: .unreadable))
            }
        }
    }

    private func effect(
        _ set: Int, _ count: Int, _ change: borrowing Change, _ xid: UInt32, _ image: WindowSchemas.Image
    ) throws -> Effect {
        guard let slot = sets[set].held.membership.keySlot, let table = sets[set].table else {
            return Effect(set: set, xid: xid, what: .row(nil, count))
        }
        switch try schemas.value(of: table.columns[slot], in: change, image) {
        case .text(let key): return Effect(set: set, xid: xid, what: .row(key, count))
        case .null: return Effect(set: set, xid: xid, what: .row(nil, count))
        case .absent: return Effect(set: set, xid: xid, what: .unreadable)
        }
    }
}
