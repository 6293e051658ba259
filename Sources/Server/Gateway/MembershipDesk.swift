import Bytes
import Change
import Diagnostics
import Matching
import Policy

/// The memberships that holders on one loop are judged by, and how the log's changes concern them.
///
/// Each holder's membership is a predicate over the membership's table, in an index of its own: a change of that table
/// finds the sets it concerns as any change finds its subscribers.
struct MembershipDesk: ~Copyable {
    private(set) var sets = Slots<LiveSet>()
    private var numbers: [SetKey: UInt32] = [:]
    private var handles: [UInt32: Handles] = [:]
    private var users: [UInt32: Int] = [:]
    private var tables: [UInt32: CatalogTable] = [:]
    /// Rows as changes leave them, and rows as changes found them.
    private var arrivals = PredicateIndex(maximumRelations: Limits.maximumCachedRelations)
    private var departures = PredicateIndex(judging: .oldAsKnown, maximumRelations: Limits.maximumCachedRelations)
    private var arrived = MatchBatch()
    private var departed = MatchBatch()
    private var passed = PassedTransactions()
    /// A table took the place of what it was before.
    private var hasReplaced = false
    /// To be asked of PostgreSQL.
    private var unfilled: [UInt32] = []
    /// Other than when their holders' predicates were made.
    private var changed: Set<UInt32> = []

    private struct SetKey: Hashable {
        var role: String
        var table: ObjectIdentifier
        var held: HeldMembership
    }

    private struct Handles {
        var arrival: PredicateIndex.Handle
        var departure: PredicateIndex.Handle
    }

    init() {}

    var isEmpty: Bool { sets.count == 0 }
    var count: Int { sets.count }

    // MARK: Sets

    /// The set of a holder; a new one is to be filled. `table` is the membership's table as the catalog has it.
    mutating func take(_ held: HeldMembership, _ claimant: Claimant, _ table: CatalogTable) -> LiveSet {
        declare(table)
        let key = SetKey(role: claimant.role, table: ObjectIdentifier(table), held: held)
        if let number = numbers[key], let known = sets[number] {
            users[number, default: 0] += 1
            return known
        }
        let number = sets.nextIndex
        let set = LiveSet(held, claimant, table, number: number, passed: passed.count)
        _ = sets.add(set)
        numbers[key] = number
        users[number] = 1
        handles[number] = Handles(
            arrival: arrivals.add(
                table: table.oid, operations: [.insert, .update], predicate: held.rows, member: number),
            departure: departures.add(
                table: table.oid, operations: [.update, .delete], predicate: held.rows, member: number))
        Metrics.shared.membershipSets.add(1)
        return set
    }

    mutating func release(_ set: LiveSet) {
        let left = (users[set.number] ?? 1) - 1
        users[set.number] = left
        guard left == 0 else { return }
        users[set.number] = nil
        numbers[SetKey(role: set.claimant.role, table: ObjectIdentifier(set.table), held: set.held)] = nil
        if let handles = handles.removeValue(forKey: set.number) {
            arrivals.remove(handles.arrival)
            departures.remove(handles.departure)
        }
        changed.remove(set.number)
        set.giveUp(.failed)
        sets.remove(set.number)
        Metrics.shared.membershipSets.add(-1)
    }

    private mutating func declare(_ table: CatalogTable) {
        if tables[table.oid] === table { return }
        // Sets of the table as it was match nothing any more: their holders are to be looked at before anything is read.
        if tables[table.oid] != nil { hasReplaced = true }
        tables[table.oid] = table
        let columns = table.columns.map(\.name)
        arrivals.declare(table: table.oid, columns: columns)
        departures.declare(table: table.oid, columns: columns)
    }

    mutating func takeReplacement() -> Bool {
        defer { hasReplaced = false }
        return hasReplaced
    }

    // MARK: Filling

    mutating func takeUnfilled() -> [LiveSet] {
        defer { unfilled = [] }
        return unfilled.compactMap { sets[$0] }.filter { $0.state == .filling }
    }

    /// PostgreSQL's answer to some sets of one reading. Those that have settled; the others are asked for again.
    mutating func fill(_ answers: [(set: UInt32, filling: UInt32, answer: MembershipFill)]) -> [LiveSet] {
        var settled: [LiveSet] = []
        var firstUnseen: (snapshot: VisibleTransactions, number: Int)?
        for (number, filling, answer) in answers {
            guard let set = sets[number], set.filling == filling, set.state == .filling else { continue }
            switch answer {
            case .filled(let rows):
                if firstUnseen?.snapshot != rows.snapshot {
                    firstUnseen = (rows.snapshot, passed.firstUnseen(in: rows.snapshot))
                }
                if !set.fill(rows, firstUnseen: firstUnseen?.number ?? 0) { refill(set) }
            case .failed: set.giveUp(.failed)
            case .unreadable: set.giveUp(.left)
            case .unavailable: continue
            }
            if set.isSettled { settled.append(set) }
        }
        return settled
    }

    /// An answer did not come: the set, which will be asked for again when somebody wants it.
    func unanswered(_ number: UInt32, filling: UInt32) -> LiveSet? {
        guard let set = sets[number], set.filling == filling, set.state == .filling else { return nil }
        set.isAsked = false
        return set
    }

    /// Somebody waits for the set.
    mutating func want(_ set: LiveSet) {
        guard !set.isSettled, !set.isAsked else { return }
        set.isAsked = true
        unfilled.append(set.number)
    }

    private mutating func refill(_ set: LiveSet) {
        set.discard(passed: passed.count)
        want(set)
        changed.insert(set.number)
        Metrics.shared.membershipRefills.add()
    }

    /// The log has a hole: nothing that was counted can be trusted.
    mutating func discardAll() {
        for number in sets.indices { if let set = sets[number] { refill(set) } }
    }

    /// The sets that are others now, or are being filled anew: whoever judges by them needs another predicate.
    mutating func takeChanged() -> [LiveSet] {
        defer { changed = [] }
        return changed.compactMap { sets[$0] }
    }

    var hasChanged: Bool { !changed.isEmpty }

    // MARK: Following the log

    mutating func noteRelation(_ fingerprint: UInt64, _ relation: Relation) {
        arrivals.noteRelation(fingerprint, relation)
        departures.noteRelation(fingerprint, relation)
    }

    mutating func pass(_ xid: UInt32) { passed.note(xid) }

    /// Applies what is left of a part. The fingerprint of a schema that was not told: `noteRelation`, and go on from there.
    @_lifetime(part: copy part)
    mutating func apply(_ part: inout TransactionPart, _ schemas: SchemaDesk) throws(ByteError) -> UInt64? {
        let (xid, lsn) = (part.info.xid, part.info.commitLSN.rawValue)
        while true {
            var forArrivals = part
            var forDepartures = part
            let outcome = try arrivals.match(&forArrivals, into: &arrived)
            _ = try departures.match(&forDepartures, into: &departed)
            for place in 0..<arrived.changeCount {
                guard let change = try part.next() else { break }
                if change.operation == .truncate {
                    truncate(schemas.relation(change.relation)?.oid, xid, lsn)
                } else if hasMatches(at: place), let relation = schemas.relation(change.relation) {
                    try apply(change, relation, at: place, xid, lsn)
                }
            }
            if case .unknownRelation(let fingerprint) = outcome { return fingerprint }
            if arrived.changeCount == 0 { return nil }
        }
    }

    private func hasMatches(at place: Int) -> Bool {
        !arrived.certain(of: place).isEmpty || !departed.certain(of: place).isEmpty
            || !arrived.asking(of: place).isEmpty || !departed.asking(of: place).isEmpty
    }

    private mutating func apply(
        _ change: borrowing Change, _ relation: Relation, at place: Int, _ xid: UInt32, _ lsn: UInt64
    ) throws(ByteError) {
        // First what goes, then what comes: a row that stays a member's leaves no trace.
        for node in 0..<departed.certain(of: place).count {
            for set in Self.sets(departures, departed.certain(of: place), node, sets) {
                try apply(set, -1, change, relation, .old, xid, lsn)
            }
        }
        for node in 0..<arrived.certain(of: place).count {
            for set in Self.sets(arrivals, arrived.certain(of: place), node, sets) {
                try apply(set, 1, change, relation, .new, xid, lsn)
            }
        }
        for node in 0..<departed.asking(of: place).count {
            for set in Self.sets(departures, departed.asking(of: place), node, sets) { refill(set) }
        }
        for node in 0..<arrived.asking(of: place).count {
            for set in Self.sets(arrivals, arrived.asking(of: place), node, sets) { refill(set) }
        }
    }

    private static func sets(
        _ index: borrowing PredicateIndex, _ nodes: Span<MatchedNode>, _ node: Int, _ sets: Slots<LiveSet>
    ) -> [LiveSet] {
        let members = index.members(of: nodes, at: node)
        var found: [LiveSet] = []
        for place in members.indices { if let set = sets[members[place]] { found.append(set) } }
        return found
    }

    /// Takes a row from a set, or adds one.
    private mutating func apply(
        _ set: LiveSet, _ count: Int, _ change: borrowing Change, _ relation: Relation, _ image: RowTexts.Image,
        _ xid: UInt32, _ lsn: UInt64
    ) throws(ByteError) {
        guard let slot = set.held.membership.keySlot else { return apply(nil, count, to: set, xid, lsn) }
        switch try RowTexts.value(of: set.keyColumn(slot), in: change, relation, image) {
        case .text(let key): apply(key, count, to: set, xid, lsn)
        case .null: apply(nil, count, to: set, xid, lsn)
        case .absent: refill(set)
        }
    }

    private mutating func apply(_ key: [UInt8]?, _ count: Int, to set: LiveSet, _ xid: UInt32, _ lsn: UInt64) {
        if set.apply(key, count, xid: xid, at: lsn) { changed.insert(set.number) }
        if set.hasTooManyDeltas || !set.isSound(at: key) { refill(set) }
    }

    private mutating func truncate(_ table: UInt32?, _ xid: UInt32, _ lsn: UInt64) {
        for number in sets.indices {
            guard let set = sets[number], set.held.membership.table == table else { continue }
            if set.state == .filling {
                refill(set)
            } else if set.truncate(xid: xid, at: lsn) {
                changed.insert(number)
            }
        }
    }
}
