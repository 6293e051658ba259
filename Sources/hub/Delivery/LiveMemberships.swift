import Bytes
import Catalog
import Change
import Diagnostics
import EventLog
import Judging
import Policy

/// Memberships by which holders on one loop are judged, kept current from the log's changes.
public struct LiveMemberships: ~Copyable {
    public private(set) var sets = Slots<MembershipSet>()
    private var numbers: [SetKey: UInt32] = [:]
    private var users: [UInt32: Int] = [:]
    private var fillings = MembershipFilling.Desk()
    private var index = MembershipIndex()
    /// Progress on the transaction that the log is at.
    private(set) var progress = MembershipProgress()
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
        index.add(set)
        metrics.membershipSets.add(1)
        return set
    }

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

    /// Declares a table. Its sets are added to the index again if the table has other columns. Sets that do not read
    /// those continue. The others match nothing any more, so their holders must be checked before anything is read.
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
        set.isUnanswered()
        return set
    }

    /// Returns the set that this answer is for; nil if no set waits for the answer any more.
    public func set(awaiting filling: MembershipFilling) -> MembershipSet? {
        guard let set = sets[filling.set], set.filling == filling, set.state == .filling else { return nil }
        return set
    }

    /// Puts the set among those to ask PostgreSQL for, because somebody waits for it.
    public mutating func want(_ set: MembershipSet) {
        if set.ask() { unfilled.append(set.number) }
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
        index.noteRelation(fingerprint, relation, foreign: foreign)
    }

    mutating func forgetRelations() { index.forgetRelations() }

    /// Forgets what may differ in another catalog: how relations are read, and refusals of PostgreSQL to fill a set.
    mutating func catalogHasChanged() {
        forgetRelations()
        for number in sets.indices { if let set = sets[number], set.isRefused { refill(set) } }
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

    // MARK: Progress

    /// Notes that the current entry's effect is to be applied. Returns true if its changes must be gone through: those
    /// of a transaction's later parts have been applied with its first part.
    mutating func beginEntry(_ info: TransactionInfo) -> Bool {
        guard progress.begin(info) else { return false }
        pass(info.xid)
        if isEmpty { return false }
        begin(info)
        return true
    }

    mutating func applyLaterParts() { progress.applyLaterParts() }

    /// Fills all sets again, because only half of a transaction could be applied. They are then unwound to before it.
    mutating func partsAreLost() {
        discardAll()
        progress.partsAreLost()
    }

    /// Ends an entry. A transaction without further parts ends with it.
    mutating func finish(_ entry: EventLogEntry) {
        progress.finishEntry(endsTransaction: entry.kind == .transaction && !entry.isContinued)
    }

    /// Begins to read the log anew.
    mutating func forgetProgress() { progress = MembershipProgress() }

    /// Checks which sets are valid for the current transaction. A set that was filled after the transaction began may
    /// contain newer rows.
    mutating func measureAtHand() {
        if let info = progress.begun { begin(info) }
    }
}

/// Progress of memberships on the transaction that the log is at.
struct MembershipProgress {
    /// True if the effect of the current entry has been applied.
    private(set) var hasApplied = false
    /// Transaction whose effect has been applied with the current entry; nil before that.
    private(set) var begun: TransactionInfo?
    /// True if the effects of the current transaction's later parts have been applied.
    private(set) var isAheadOfParts = false

    /// Begins an entry. Returns false if its effect was applied with an earlier part of its transaction.
    mutating func begin(_ info: TransactionInfo) -> Bool {
        (hasApplied, begun) = (true, info)
        return !isAheadOfParts
    }

    mutating func applyLaterParts() { isAheadOfParts = true }

    /// Notes that the later parts could not be applied: the entry is applied again.
    mutating func partsAreLost() { (hasApplied, isAheadOfParts) = (false, false) }

    mutating func finishEntry(endsTransaction: Bool) {
        (hasApplied, begun) = (false, nil)
        if endsTransaction { isAheadOfParts = false }
    }
}
