import Bytes
import Catalog
import Change
import Diagnostics
import Judging
import Matching
import Policy

/// Memberships by which holders on one loop are judged, kept current from the log's changes.
///
/// Each holder's membership is a predicate over the membership's table, in an index of its own. A change of that table
/// finds the sets that it concerns as any change finds its subscribers.
public struct LiveMemberships: ~Copyable {
    public private(set) var sets = Slots<MembershipSet>()
    private var numbers: [SetKey: UInt32] = [:]
    private var handles: [UInt32: Handles] = [:]
    private var users: [UInt32: Int] = [:]
    private var fillings = MembershipFilling.Desk()
    private var tables: [UInt32: CatalogTable] = [:]
    /// Index of sets by rows as changes leave them; `departures` is the index by rows as changes found them.
    private var arrivals = PredicateIndex(maximumRelations: Limits.maximumCachedRelations)
    private var departures = PredicateIndex(judging: .oldAsKnown, maximumRelations: Limits.maximumCachedRelations)
    private var arrived = MatchBatch()
    private var departed = MatchBatch()
    private var passed = PassedTransactions()
    /// True if a table has changed so that a set of it is no longer valid.
    private var hasReplaced = false
    /// Sets for which the loop must ask PostgreSQL.
    private var unfilled: [UInt32] = []
    /// Sets that changed since the predicates of their holders were made.
    private var changed: Set<UInt32> = []
    /// Sets that were filled with more than the log has shown.
    private var mayBeAhead: Set<UInt32> = []
    /// Sets whose answers wait until the log has everything that is in them.
    private var unwinding: Set<UInt32> = []

    /// Parts of the catalog that concern a set. Only a change of these makes another set.
    private struct SetKey: Hashable {
        var role: String
        var table: UInt32
        var columns: [CatalogColumn]
        var held: HeldMembership
        /// Position from which the table is followed. Changes committed while the table is not published never come, so
        /// that another set is needed after that.
        var followedSince: UInt64

        init(_ held: HeldMembership, _ claimant: PolicySubject, _ table: CatalogTable, followedSince: UInt64) {
            role = claimant.role
            self.table = table.oid
            columns = MembershipSet.columns(held, of: table)
            self.held = held
            self.followedSince = followedSince
        }

        init(_ set: MembershipSet) {
            self.init(set.held, set.claimant, set.table, followedSince: set.followedSince)
        }
    }

    private struct Handles {
        var arrival: PredicateIndex.Handle
        var departure: PredicateIndex.Handle
    }

    private let metrics: ProjectMetrics

    init(_ metrics: ProjectMetrics) { self.metrics = metrics }

    var isEmpty: Bool { sets.count == 0 }
    var count: Int { sets.count }

    // MARK: Sets

    /// Returns the set of a holder; a new one must be filled. `table` is the membership's table as the catalog has it.
    public mutating func take(
        _ held: HeldMembership, _ claimant: PolicySubject, _ table: CatalogTable, followedSince: LSN,
        unknownPast: UnknownPast = .none
    ) -> MembershipSet {
        declare(table)
        let key = SetKey(held, claimant, table, followedSince: followedSince.rawValue)
        if let number = numbers[key], let known = sets[number] {
            users[number, default: 0] += 1
            return known
        }
        let number = sets.nextIndex
        let set = MembershipSet(
            held, claimant, table, number: number, filling: fillings.next(of: number), passed: passed.count,
            followedSince: followedSince.rawValue, unknownPast: unknownPast)
        _ = sets.add(set)
        numbers[key] = number
        users[number] = 1
        enlist(set)
        metrics.membershipSets.add(1)
        return set
    }

    /// Adds a set to the indexes, so that changes of its table find the set.
    private mutating func enlist(_ set: MembershipSet) {
        let (table, rows) = (set.table.oid, set.held.rows)
        assert(handles[set.number] == nil, "a set is listed once")
        precondition(tables[table].map { set.stands(on: $0) } ?? false, "a set is read by its table's own columns")
        handles[set.number] = Handles(
            arrival: arrivals.add(
                table: table, operations: [.insert, .update], predicate: rows, member: set.number),
            departure: departures.add(
                table: table, operations: [.update, .delete], predicate: rows, member: set.number))
    }

    private mutating func delist(_ set: MembershipSet) {
        guard let handles = handles.removeValue(forKey: set.number) else { return }
        arrivals.remove(handles.arrival)
        departures.remove(handles.departure)
    }

    public mutating func release(_ set: MembershipSet) {
        assert(users[set.number, default: 0] > 0, "a set is given back by who took it")
        let left = (users[set.number] ?? 1) - 1
        users[set.number] = left
        guard left == 0 else { return }
        users[set.number] = nil
        numbers[SetKey(set)] = nil
        delist(set)
        changed.remove(set.number)
        mayBeAhead.remove(set.number)
        unwinding.remove(set.number)
        set.giveUp(.failed)
        sets.remove(set.number)
        assert(handles[set.number] == nil && numbers.count == sets.count, "nothing of a set is left")
        metrics.membershipSets.add(-1)
    }

    private mutating func declare(_ table: CatalogTable) {
        let known = tables[table.oid]
        if known === table { return }
        tables[table.oid] = table
        let columns = table.columns.map(\.name)
        if let known, known.columns.map(\.name) == columns { return }
        arrivals.declare(table: table.oid, columns: columns)
        departures.declare(table: table.oid, columns: columns)
        if known != nil { enlistAgain(table) }
    }

    /// Adds the table's sets to the indexes again, because the table has other columns. Sets that do not read those
    /// continue. The others match nothing any more, so their holders must be checked before anything is read.
    private mutating func enlistAgain(_ table: CatalogTable) {
        for number in sets.indices {
            guard let set = sets[number], set.table.oid == table.oid else { continue }
            if set.stands(on: table) {
                delist(set)
                enlist(set)
            } else {
                hasReplaced = true
            }
        }
    }

    mutating func takeReplacement() -> Bool {
        defer { hasReplaced = false }
        return hasReplaced
    }

    // MARK: Filling

    /// True if somebody waits for a set that PostgreSQL has not been asked for yet.
    public var hasUnfilled: Bool { !unfilled.isEmpty }

    mutating func takeUnfilled() -> [MembershipSet] {
        defer { unfilled = [] }
        // A set that was discarded twice meanwhile is asked for once: no question would match a second answer.
        var taken: Set<UInt32> = []
        return unfilled.compactMap { taken.insert($0).inserted ? sets[$0] : nil }
            .filter { $0.state == .filling && !$0.isUnwound }
    }

    /// Takes PostgreSQL's answer to some sets of one reading. Returns the sets that are settled; the hub asks again for
    /// the others.
    public mutating func fill(
        _ answers: [(filling: MembershipFilling, answer: MembershipFill)], at now: UInt64
    ) -> [MembershipSet] {
        var settled: [MembershipSet] = []
        var firstUnseen: (snapshot: VisibleTransactions, number: Int)?
        for (filling, answer) in answers {
            guard let set = self.set(awaiting: filling) else { continue }
            let number = set.number
            switch answer {
            case .filled(let rows):
                if firstUnseen?.snapshot != rows.snapshot {
                    firstUnseen = (rows.snapshot, passed.firstUnseen(in: rows.snapshot))
                }
                if !set.fill(rows, firstUnseen: firstUnseen?.number ?? 0, at: now) { refill(set) }
            case .failed: set.giveUp(.failed)
            case .unreadable: set.giveUp(.left)
            case .unavailable: continue
            }
            assert(set.state != .filling || set.isUnwound || !set.isSettled, "who is asked again is not settled")
            if set.isUnwound { unwinding.insert(number) }
            if set.mayBeAhead { mayBeAhead.insert(number) }
            if set.isSettled { settled.append(set) }
        }
        return settled
    }

    /// Notes that an answer did not come. Returns the set; the hub asks for it again when it is needed.
    public func unanswered(_ filling: MembershipFilling) -> MembershipSet? {
        guard let set = set(awaiting: filling) else { return nil }
        set.isAsked = false
        return set
    }

    /// Returns the set that this answer is for; nil if no set waits for the answer any more.
    public func set(awaiting filling: MembershipFilling) -> MembershipSet? {
        guard let set = sets[filling.set], set.filling == filling, set.state == .filling else { return nil }
        return set
    }

    /// Puts the set among those to ask PostgreSQL for, because somebody waits for it.
    public mutating func want(_ set: MembershipSet) {
        guard !set.isSettled, !set.isAsked else { return }
        set.isAsked = true
        unfilled.append(set.number)
    }

    /// Reopens the set for a channel that is promised the log's next transactions, of which the set says nothing yet.
    public mutating func reopen(_ set: MembershipSet, for place: UInt32, at now: UInt64) {
        assert(sets[set.number] === set, "what is reopened is on the desk")
        set.reopen(for: place, at: now)
        guard set.isUnwound else { return }
        mayBeAhead.remove(set.number)
        unwinding.insert(set.number)
    }

    private mutating func refill(_ set: MembershipSet) {
        set.discard(passed: passed.count, for: fillings.next(of: set.number))
        want(set)
        changed.insert(set.number)
        metrics.membershipRefills.add()
    }

    /// Fills all sets again, because the log has a gap and no count can be trusted.
    mutating func discardAll() {
        for number in sets.indices { if let set = sets[number] { refill(set) } }
    }

    /// Returns the sets that changed or are being filled again. Policies that judge by them need new predicates.
    mutating func takeChanged() -> [MembershipSet] {
        defer { changed = [] }
        return changed.sorted().compactMap { sets[$0] }
    }

    var hasChanged: Bool { !changed.isEmpty }

    // MARK: Following the log

    mutating func noteRelation(_ fingerprint: UInt64, _ relation: Relation, foreign: Set<Int>) {
        arrivals.noteRelation(fingerprint, relation, foreign: foreign)
        departures.noteRelation(fingerprint, relation, foreign: foreign)
    }

    mutating func forgetRelations() {
        arrivals.forgetRelations()
        departures.forgetRelations()
    }

    mutating func pass(_ xid: UInt32) { passed.note(xid) }

    /// Begins a transaction. Sets that were filled with newer rows cannot judge its rows.
    mutating func begin(_ info: TransactionInfo) {
        guard !mayBeAhead.isEmpty else { return }
        for number in mayBeAhead.sorted() {
            guard let set = sets[number] else { continue }
            if set.begin(xid: info.xid, at: info.commitLSN.rawValue) { changed.insert(number) }
            if !set.mayBeAhead { mayBeAhead.remove(number) }
        }
    }

    /// Applies the rest of a part. Returns the fingerprint of a schema that is not known: the caller then calls
    /// `noteRelation` and goes on from there.
    @_lifetime(part: copy part)
    mutating func apply(_ part: inout TransactionPart, _ schemas: SchemaRegistry) throws(ByteError) -> UInt64? {
        let (xid, lsn) = (part.xid, part.commitLSN.rawValue)
        var effects: [Effect] = []
        let unknown = try gather(&part, schemas, into: &effects)
        for effect in effects {
            switch effect {
            case .row(let number, let key, let change):
                if let set = sets[number] { apply(key, change, to: set, xid, lsn) }
            case .unreadable(let number): if let set = sets[number] { refill(set) }
            case .truncated(let table): truncate(table, xid, lsn)
            }
        }
        return unknown
    }

    /// Effect on sets of a change of a membership's table.
    private enum Effect {
        /// A row that gives the key was added (1) or removed (-1).
        case row(set: UInt32, key: [UInt8]?, Int)
        /// The change does not show its effect.
        case unreadable(set: UInt32)
        case truncated(table: UInt32?)
    }

    @_lifetime(part: copy part)
    private mutating func gather(
        _ part: inout TransactionPart, _ schemas: SchemaRegistry, into effects: inout [Effect]
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
                    try gather(change, relation, at: place, into: &effects)
                }
            }
            if case .unknownRelation(let fingerprint) = outcome { return fingerprint }
            if arrived.changeCount == 0 { return nil }
        }
    }

    /// Returns effects that fill the table's sets again, because the log has lost the values of one of its changes.
    private static func forgotten(_ table: UInt32?, _ sets: Slots<MembershipSet>) -> [Effect] {
        sets.indices.filter { sets[$0]?.held.membership.table == table }.map { .unreadable(set: $0) }
    }

    private func hasMatches(at place: Int) -> Bool {
        !arrived.certain(of: place).isEmpty || !departed.certain(of: place).isEmpty
            || !arrived.asking(of: place).isEmpty || !departed.asking(of: place).isEmpty
    }

    /// Gathers removed rows before added ones, so that a row which stays in a set leaves no trace.
    private func gather(
        _ change: borrowing Change, _ relation: Relation, at place: Int, into effects: inout [Effect]
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

    private mutating func apply(_ key: [UInt8]?, _ count: Int, to set: MembershipSet, _ xid: UInt32, _ lsn: UInt64) {
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

    // MARK: Unwinding

    /// True if the hub must look through the log now, because the log has everything that some answers contain.
    func mayUnwind(coveredUpTo position: LSN) -> Bool {
        unwinding.contains { sets[$0]?.mayUnwind(coveredUpTo: position.rawValue) ?? false }
    }

    public var isUnwinding: Bool { !unwinding.isEmpty }

    /// True if some channels have waited for as long as any may.
    func isTiredOfUnwinding(_ now: UInt64) -> Bool {
        unwinding.contains { sets[$0]?.isTiredOfUnwinding(now) ?? false }
    }

    mutating func beginUnwinding() {
        for number in unwinding { sets[number]?.beginUnwinding() }
    }

    /// Takes the effect of a later transaction out of the answers that contain it. Returns a fingerprint as `apply`
    /// does.
    @_lifetime(part: copy part)
    mutating func unwind(_ part: inout TransactionPart, _ schemas: SchemaRegistry) throws(ByteError) -> UInt64? {
        let (xid, lsn) = (part.xid, part.commitLSN.rawValue)
        var effects: [Effect] = []
        let unknown = try gather(&part, schemas, into: &effects)
        for effect in effects {
            switch effect {
            case .row(let number, let key, let change): sets[number]?.unwind((key, change), xid: xid, at: lsn)
            case .unreadable(let number): sets[number]?.unwind(nil, xid: xid, at: lsn)
            case .truncated(let table):
                for number in unwinding where sets[number]?.table.oid == table {
                    sets[number]?.unwind(nil, xid: xid, at: lsn)
                }
            }
        }
        return unknown
    }

    /// Ends the look through the log (`isLost` if that was impossible). Returns the sets that are settled.
    mutating func unwound(coveredUpTo position: LSN, _ now: UInt64, isLost: Bool) -> [MembershipSet] {
        var settled: [MembershipSet] = []
        for number in unwinding.sorted() {
            guard let set = sets[number] else { continue }
            let isTired = set.isTiredOfUnwinding(now)
            guard isTired || set.mayUnwind(coveredUpTo: position.rawValue) else { continue }
            unwinding.remove(number)
            assert(set.isUnwound, "an answer waits to be unwound")
            set.unwound(isLost: isLost || isTired)
            assert(!set.isUnwound, "an answer is unwound once")
            if set.mayBeAhead { mayBeAhead.insert(number) }
            if set.isSettled { settled.append(set) } else { refill(set) }
        }
        return settled
    }
}
