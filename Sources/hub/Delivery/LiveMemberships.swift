import Bytes
import Catalog
import Change
import Diagnostics
import EventLog
import Judging
import Policy

/// Membership sets of all holders on one loop. The log's changes keep them current.
public struct LiveMemberships: ~Copyable {
    public private(set) var sets = Slots<MembershipSet>()
    private var numbers: [SetKey: UInt32] = [:]
    private var users: [UInt32: Int] = [:]
    private var fillings = MembershipFilling.Desk()
    private var index = MembershipIndex()
    /// Progress in applying the current transaction of the log to the sets.
    private(set) var progress = MembershipProgress()
    /// Numbers of the sets that were filled while a transaction of the log was already applied to the others.
    private var filledMeanwhile: Set<UInt32> = []
    private var passed = PassedTransactions()
    /// True if a table changed so that some of its sets are no longer valid.
    private var hasReplaced = false
    /// Numbers of the sets that the loop must ask PostgreSQL to fill.
    private var unfilled: [UInt32] = []
    /// Numbers of sets that changed after the predicates of their holders were made.
    private var changed: Set<UInt32> = []
    /// Numbers of sets whose rows contain transactions that the loop has not reached in the log.
    private var mayBeAhead: Set<UInt32> = []
    /// Numbers of sets with an answer that the loop cannot use until the log has every transaction in it.
    private var unwinding: Set<UInt32> = []
    /// Watch of the log while such answers wait; nil if there are none.
    private var motion: LogMotion?

    /// Properties that determine a set. If one changes in the catalog, the holder needs another set.
    private struct SetKey: Hashable {
        var role: String
        var table: UInt32
        var columns: [CatalogColumn]
        var held: HeldMembership
        /// Position from which the log has all changes of the table. A table that leaves the publication and returns
        /// has a new position, and so needs a new set.
        var followedSince: UInt64

        init(_ held: HeldMembership, _ subject: PolicySubject, _ table: CatalogTable, followedSince: UInt64) {
            role = subject.role
            self.table = table.oid
            columns = MembershipSet.columns(held, of: table)
            self.held = held
            self.followedSince = followedSince
        }

        init(_ set: MembershipSet) {
            self.init(set.held, set.subject, set.table, followedSince: set.followedSince)
        }
    }

    private let metrics: ProjectMetrics

    init(_ metrics: ProjectMetrics) { self.metrics = metrics }

    var isEmpty: Bool { sets.count == 0 }
    var count: Int { sets.count }

    // MARK: Sets

    /// Returns the holder's set of keys for a membership, for one more user. If the set is new, the caller must ask
    /// PostgreSQL to fill it. `table` is the membership's table in the catalog.
    public mutating func take(
        _ held: HeldMembership, _ subject: PolicySubject, _ table: CatalogTable, followedSince: LSN,
        unknownPast: UnknownPast = .none
    ) -> MembershipSet {
        declare(table)
        let key = SetKey(held, subject, table, followedSince: followedSince.rawValue)
        if let number = numbers[key], let known = sets[number] {
            users[number, default: 0] += 1
            return known
        }
        let number = sets.nextIndex
        let set = MembershipSet(
            held, subject, table, number: number, filling: fillings.next(of: number), passed: passed.count,
            followedSince: followedSince.rawValue, unknownPast: unknownPast)
        _ = sets.add(set)
        numbers[key] = number
        users[number] = 1
        index.add(set)
        metrics.membershipSets.add(1)
        return set
    }

    /// Releases the set for one user. The last user's release removes it.
    public mutating func release(_ set: MembershipSet) {
        assert(users[set.number, default: 0] > 0, "a set is given back by who took it")
        let left = (users[set.number] ?? 1) - 1
        users[set.number] = left
        guard left == 0 else { return }
        users[set.number] = nil
        numbers[SetKey(set)] = nil
        index.remove(set)
        changed.remove(set.number)
        mayBeAhead.remove(set.number)
        unwinding.remove(set.number)
        set.giveUp(.failed)
        sets.remove(set.number)
        assert(!index.has(set) && numbers.count == sets.count, "nothing of a set is left")
        metrics.membershipSets.add(-1)
    }

    /// Replaces the table's columns in the membership index. After a change of columns, adds the sets again whose own
    /// columns are unchanged. The other sets match nothing any more: their holders need new policies before the loop
    /// reads on.
    private mutating func declare(_ table: CatalogTable) {
        guard index.declare(table) else { return }
        for number in sets.indices {
            guard let set = sets[number], set.table.oid == table.oid else { continue }
            if set.stands(on: table) {
                index.remove(set)
                index.add(set)
            } else {
                hasReplaced = true
            }
        }
    }

    /// Returns true if a change of a table's columns made some set invalid since the last call.
    mutating func takeReplacement() -> Bool {
        defer { hasReplaced = false }
        return hasReplaced
    }

    // MARK: Filling

    /// True if some channel waits for a set for which PostgreSQL has not been asked yet.
    public var hasUnfilled: Bool { !unfilled.isEmpty }

    /// Removes and returns the sets that the loop must ask PostgreSQL to fill.
    mutating func takeUnfilled() -> [MembershipSet] {
        defer { unfilled = [] }
        // A set may be listed twice, if it was discarded twice. PostgreSQL is asked once, because only one answer would
        // be used.
        var taken: Set<UInt32> = []
        return unfilled.compactMap { taken.insert($0).inserted ? sets[$0] : nil }
            .filter { $0.state == .filling && !$0.isUnwound }
    }

    /// Stores PostgreSQL's answers in the sets that wait for them. Returns the sets that decisions can use now. The hub
    /// asks again for the others.
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
        noteFilled(settled)
        return settled
    }

    /// Records that PostgreSQL did not answer the question to fill a set. Returns the set; the hub asks for it again
    /// when it is needed.
    public func unanswered(_ filling: MembershipFilling) -> MembershipSet? {
        guard let set = set(awaiting: filling) else { return nil }
        set.isUnanswered()
        return set
    }

    private mutating func noteFilled(_ settled: [MembershipSet]) {
        if progress.transaction != nil { filledMeanwhile.formUnion(settled.map(\.number)) }
    }

    /// Returns the set that waits for PostgreSQL's answer to this filling; nil if no set does any more.
    public func set(awaiting filling: MembershipFilling) -> MembershipSet? {
        guard let set = sets[filling.set], set.filling == filling, set.state == .filling else { return nil }
        return set
    }

    /// Queues the set for the next question to PostgreSQL, because a channel waits for it.
    public mutating func want(_ set: MembershipSet) {
        if set.ask() { unfilled.append(set.number) }
    }

    /// Makes a filled set wait again, for a channel that must receive the log's next transactions. PostgreSQL filled
    /// the set from a later state of the table, so it cannot decide about these transactions yet.
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

    /// Empties all sets and has them filled again, because the log has a gap and the counts may be wrong.
    mutating func discardAll() {
        for number in sets.indices { if let set = sets[number] { refill(set) } }
    }

    /// Removes and returns the sets that changed or were emptied. Policies that use them need new predicates.
    mutating func takeChanged() -> [MembershipSet] {
        defer { changed = [] }
        return changed.sorted().compactMap { sets[$0] }
    }

    var hasChanged: Bool { !changed.isEmpty }

    // MARK: Following the log

    mutating func noteRelation(_ fingerprint: UInt64, _ relation: Relation, foreign: Set<Int>) {
        index.noteRelation(fingerprint, relation, foreign: foreign)
    }

    mutating func forgetRelations() { index.forgetRelations() }

    /// Forgets facts that may differ in a new catalog: how stored rows are read, and failures to fill a set.
    mutating func catalogHasChanged() {
        forgetRelations()
        for number in sets.indices { if let set = sets[number], set.isRefused { refill(set) } }
    }

    mutating func pass(_ xid: UInt32) { passed.note(xid) }

    /// Begins a transaction of the log. Finds the sets that contain later transactions and so cannot decide about its
    /// rows.
    mutating func begin(_ info: TransactionInfo) {
        guard !mayBeAhead.isEmpty else { return }
        for number in mayBeAhead.sorted() {
            guard let set = sets[number] else { continue }
            if set.begin(xid: info.xid, at: info.commitLSN.rawValue) { changed.insert(number) }
            if !set.mayBeAhead { mayBeAhead.remove(number) }
        }
    }

    /// Applies the rest of a part of a transaction to the sets. If a schema is unknown, stops there and returns its
    /// fingerprint: the caller then calls `noteRelation` and calls this again.
    @_lifetime(part: copy part)
    mutating func apply(_ part: inout TransactionPart, _ schemas: SchemaRegistry) throws(ByteError) -> UInt64? {
        let (xid, lsn) = (part.xid, part.commitLSN.rawValue)
        var effects: [MembershipIndex.Effect] = []
        let unknown = try index.gather(&part, schemas, sets, into: &effects)
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

    /// True if the log now has every transaction in some waiting answer of PostgreSQL. The hub should then read ahead,
    /// to remove later transactions from that answer.
    func mayUnwind(coveredUpTo position: LSN) -> Bool {
        unwinding.contains { sets[$0]?.mayUnwind(coveredUpTo: position.rawValue) ?? false }
    }

    public var isUnwinding: Bool { !unwinding.isEmpty }

    /// True if some answer of PostgreSQL has waited for the maximum time to have later transactions removed.
    func isTiredOfUnwinding(_ now: UInt64) -> Bool {
        unwinding.contains { sets[$0]?.isTiredOfUnwinding(now) ?? false }
    }

    /// True if answers of PostgreSQL wait for a log that nothing reaches now, and nobody else is delayed by that.
    public var awaitStandingLog: Bool { isUnwinding && motion?.stands ?? false }

    /// Looks how far the log has come while answers wait for it. Time for which it stands counts little.
    mutating func watchLog(coveredUpTo position: LSN, _ now: UInt64, delaysOthers: Bool) {
        var motion = motion ?? LogMotion(position, at: now)
        let stood = motion.look(position, at: now, delaysOthers: delaysOthers)
        self.motion = motion
        if stood > 0 { for number in unwinding { sets[number]?.logStood(for: stood, until: now) } }
    }

    mutating func endWatch() { motion = nil }

    mutating func beginUnwinding() {
        for number in unwinding { sets[number]?.beginUnwinding() }
    }

    /// Removes the effects of a later transaction from those answers of PostgreSQL that contain it. If a schema is
    /// unknown, stops there and returns its fingerprint, as `apply` does.
    @_lifetime(part: copy part)
    mutating func unwind(_ part: inout TransactionPart, _ schemas: SchemaRegistry) throws(ByteError) -> UInt64? {
        let (xid, lsn) = (part.xid, part.commitLSN.rawValue)
        var effects: [MembershipIndex.Effect] = []
        let unknown = try index.gather(&part, schemas, sets, into: &effects)
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

    /// Ends the reading ahead in the log; `isLost` is true if it failed. Returns the sets that decisions can use now.
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
        noteFilled(settled)
        return settled
    }

    // MARK: Progress

    /// Begins to apply the current log entry to the sets. Returns false if there is nothing to apply: no sets exist, or
    /// the effect was already applied with the transaction's first part.
    mutating func beginEntry(_ info: TransactionInfo) -> Bool {
        guard progress.begin(info) else { return false }
        pass(info.xid)
        if isEmpty { return false }
        begin(info)
        return true
    }

    mutating func applyLaterParts() { progress.applyLaterParts() }

    /// Empties all sets and has them filled again, because a transaction was applied only in part.
    mutating func partsAreLost() {
        discardAll()
        progress.partsAreLost()
    }

    /// Ends a log entry. If the transaction has no further parts, ends the transaction too.
    mutating func finish(_ entry: EventLogEntry) {
        progress.finishEntry(endsTransaction: entry.kind == .transaction && !entry.isContinued)
        if progress.transaction == nil, !filledMeanwhile.isEmpty { filledMeanwhile = [] }
    }

    /// Returns the keys that came or went with the transaction at the frontier, if the sets already contain it although
    /// its rows have not all been delivered. A channel that comes to this reader now does not hear of them otherwise.
    func touchedAhead(_ set: MembershipSet) -> TouchedKeys {
        guard let transaction = progress.transaction else { return TouchedKeys() }
        if !filledMeanwhile.contains(set.number) { return set.touched(by: transaction) }
        var keys = TouchedKeys()
        keys.addAll()
        return keys
    }

    /// Forgets which entry was applied, because the log is opened again.
    mutating func forgetProgress() { progress = MembershipProgress() }

    /// Checks which sets are valid for the current transaction. A set that was filled after the transaction began may
    /// contain later transactions.
    mutating func measureAtHand() {
        if let info = progress.begun { begin(info) }
    }
}

/// Record of what was applied to the membership sets of the current transaction of the log.
struct MembershipProgress {
    /// True if the effect of the current log entry on the sets has been applied.
    private(set) var hasApplied = false
    /// Transaction of the current entry, if its effect has been applied; nil otherwise.
    private(set) var begun: TransactionInfo?
    /// True if the effects of the transaction's later parts have already been applied.
    private(set) var isAheadOfParts = false
    /// Commit position of the transaction whose effect has been applied, until it has been delivered.
    private(set) var transaction: UInt64?

    /// Begins a log entry. Returns false if its effect was already applied with an earlier part of its transaction.
    mutating func begin(_ info: TransactionInfo) -> Bool {
        (hasApplied, begun, transaction) = (true, info, info.commitLSN.rawValue)
        return !isAheadOfParts
    }

    mutating func applyLaterParts() { isAheadOfParts = true }

    /// Records that the later parts could not be applied to the sets. The entry is applied again.
    mutating func partsAreLost() { (hasApplied, isAheadOfParts, transaction) = (false, false, nil) }

    mutating func finishEntry(endsTransaction: Bool) {
        (hasApplied, begun) = (false, nil)
        if endsTransaction { (isAheadOfParts, transaction) = (false, nil) }
    }
}
