import Catalog
import Change
import Diagnostics
import Judging
import Policy
import System

/// Keys that one holder has by a membership: rows of another table that decide which rows the holder sees. PostgreSQL
/// fills the set, then the log keeps it current, transaction by transaction.
///
/// The set counts rows by key, so that a key stays while at least one row has it.
public final class MembershipSet {
    public enum State: Equatable {
        /// The set waits for its rows from PostgreSQL: no decision may use it.
        case filling
        /// The set contains the keys of the current rows.
        case live
        /// PostgreSQL failed to read the rows, and would fail again: a holder that depends on the set sees nothing.
        case failed
        /// The set has too many keys, or the hub cannot read them: PostgreSQL decides on each row.
        case left
    }

    public let held: HeldMembership
    public let subject: PolicySubject
    /// Table of the membership, as the catalog had it when the set was made.
    public let table: CatalogTable
    /// Index of this set in `LiveMemberships`.
    public let number: UInt32
    private(set) var state = State.filling
    private var counted: CountedKeys
    private var pending: PendingFill
    private var validity: MembershipValidity
    private var audience = MembershipAudience()
    /// Keys that came or went since the policies that use the set were last evaluated.
    private(set) var touched = TouchedKeys()
    private var newestTouched = NewestTouchedKeys()

    public init(
        _ held: HeldMembership, _ subject: PolicySubject, _ table: CatalogTable, number: UInt32 = 0,
        filling: MembershipFilling? = nil, passed: Int = 0, followedSince: UInt64 = 0,
        unknownPast: UnknownPast = .none
    ) {
        self.held = held
        self.subject = subject
        self.table = table
        self.number = number
        counted = CountedKeys(areKeyed: held.membership.keySlot != nil)
        pending = PendingFill(filling, passed: passed)
        validity = MembershipValidity(followedSince: followedSince, unknownPast: unknownPast)
    }

    public var keys: MembershipKeys {
        MembershipKeys(
            keys: counted.inOrder, hasNull: counted.nullCount > 0, hasRows: counted.rowCount > 0,
            // PostgreSQL could not decide about an older transaction, because it only knows the present members.
            hasFailed: state == .failed || validity.measure == .tooNew,
            isUnknown: state == .left || state == .filling || validity.measure == .notYetFollowed)
    }

    /// Columns of the table that the set reads, as the catalog had them when the set was made.
    var columns: [CatalogColumn] { MembershipSet.columns(held, of: table) }

    /// True if the columns that the set reads are the same in this version of its table, so that the set stays valid.
    public func stands(on other: CatalogTable) -> Bool {
        table === other || table.oid == other.oid && columns == MembershipSet.columns(held, of: other)
    }

    static func columns(_ held: HeldMembership, of table: CatalogTable) -> [CatalogColumn] {
        let slots = Set(held.rows.slots + (held.membership.keySlot.map { [$0] } ?? []))
        return slots.sorted().compactMap { table.columns.indices.contains($0) ? table.columns[$0] : nil }
    }

    /// True if PostgreSQL failed to fill the set, or the set has too many keys.
    var isRefused: Bool { state == .failed || state == .left }

    /// True if decisions can use the set, even if it is failed or left to PostgreSQL.
    public var isSettled: Bool { state != .filling }

    func keyColumn(_ slot: Int) -> RowTexts.Wanted { RowTexts.Wanted(table.columns[slot]) }

    // MARK: Channels and policies

    /// Channels that wait for the set, sorted by index, so that every run of the program has the same order.
    public var waitersInOrder: [UInt32] { audience.waiters.sorted() }
    public var isAwaited: Bool { !audience.waiters.isEmpty }
    /// Policies that use the set, sorted by number, so that every run of the program has the same order.
    public var usersInOrder: [ActivePolicy] { audience.usersInOrder }

    /// Records that the channel waits until the set is filled.
    public func await(by place: UInt32) { audience.await(by: place) }

    /// Removes and returns the channels that waited for the set.
    public func takeWaiters() -> [UInt32] { audience.takeWaiters() }

    /// Records the channels that joined before the set was filled: those that wait and for which `isServed` is true,
    /// and `others`. The hub must tell them about changes on which the set cannot decide.
    public func owe(_ isServed: (UInt32) -> Bool, and others: Set<UInt32>) { audience.owe(isServed, and: others) }

    /// True if the channel joined before the set was filled.
    public func isOwed(_ place: UInt32) -> Bool { audience.owed.contains(place) }

    /// Forgets the channels that joined before the set was filled, after the hub has told their clients about possible
    /// losses.
    public func owedAreTold() { audience.owedAreTold() }

    func use(by policy: ActivePolicy) { audience.use(by: policy) }
    func letGo(of policy: ActivePolicy) { audience.letGo(of: policy) }

    // MARK: Filling

    /// Identity of the current filling; nil if the set is not being filled.
    public var filling: MembershipFilling? { pending.filling }
    /// WAL position from which the log has every change of the table.
    public var followedSince: UInt64 { validity.followedSince }
    /// True if the set contains later transactions than the current one, and the keys at the current one are not known.
    public var isTooNew: Bool { validity.measure == .tooNew }

    /// Records that the hub asks PostgreSQL to fill the set. Returns false if a question is under way or is not needed.
    func ask() -> Bool { !isSettled && pending.ask() }

    /// Records that PostgreSQL did not answer the question to fill the set.
    func isUnanswered() { pending.isUnanswered() }

    /// Empties the set, so that PostgreSQL can fill it again.
    func discard(passed: Int, for filling: MembershipFilling) {
        forget()
        touched.addAll()
        pending = PendingFill(filling, passed: passed)
    }

    /// True if the keys are those at the current transaction, or will not become known.
    public var isCurrent: Bool {
        switch state {
        case .live: validity.measure == .exact
        case .failed, .left: true
        case .filling: false
        }
    }

    /// Forgets which keys came or went, if all policies that use the set have been evaluated with them.
    public func forgetTouched() {
        if isCurrent, audience.usersInOrder.allSatisfy({ $0.sets.allSatisfy(\.isCurrent) }) { touched = TouchedKeys() }
    }

    /// Returns the keys that came or went with the transaction at this position, which is the newest that was applied.
    func touched(by transaction: UInt64) -> TouchedKeys { newestTouched.touched(by: transaction) }

    /// True if only PostgreSQL knows the keys, and some row came or went, so that a holder may see other rows.
    public var isLeftAndTouched: Bool { state == .left && !touched.isEmpty }

    private func forget() {
        state = .filling
        counted.removeAll()
        pending = PendingFill()
        validity.forget()
        audience.owedAreTold()
    }

    /// Stores PostgreSQL's answer. `firstUnseen` is the number of the first transaction that the answer does not
    /// contain. Returns false if the loop had read that transaction before it asked, so that the hub must ask again.
    public func fill(_ rows: FilledMembership, firstUnseen: Int, at now: UInt64) -> Bool {
        assert(state == .filling && !isUnwound, "an answer is to what is being asked")
        guard pending.isComplete(firstUnseen: firstUnseen) else { return false }
        guard rows.keys.count <= Limits.maximumMembershipKeys else {
            giveUp(.left)
            return true
        }
        // The channels that joined before need the members at earlier transactions, so the answer waits.
        if !audience.owed.isEmpty {
            pending.keep(rows, at: now)
            return true
        }
        take(rows, seenUpTo: rows.position.rawValue)
        return state == .live
    }

    private func take(_ rows: FilledMembership, seenUpTo end: UInt64) {
        pending.count(rows, in: &counted)
        validity.filled(SeenTransactions(visible: rows.snapshot, end: end))
        state = counted.areSound ? .live : .filling
        assert(!isUnwound, "nothing is left to be counted")
    }

    /// Ends the filling without keys: `end` is `failed` or `left`.
    public func giveUp(_ end: State) {
        assert(end == .failed || end == .left, "giving up is an end")
        forget()
        touched.addAll()
        state = end
        assert(counted.isEmpty, "who gave up counts nobody as a member")
    }

    // MARK: Unwinding

    /// True if an answer of PostgreSQL waits until the log has every transaction in it.
    var isUnwound: Bool { pending.isAnswered }

    /// True if an answer of PostgreSQL waits and the log has every transaction in it.
    func mayUnwind(coveredUpTo covered: UInt64) -> Bool { pending.mayUnwind(coveredUpTo: covered) }

    /// True if an answer of PostgreSQL has waited for the maximum time.
    func isTiredOfUnwinding(_ now: UInt64) -> Bool { pending.isTiredOfUnwinding(now) }

    /// Records that nothing reached the log for this time up to `now`.
    func logStood(for nanoseconds: UInt64, until now: UInt64) { pending.logStood(for: nanoseconds, until: now) }

    /// Begins to collect the effects of later transactions, while the loop reads the log ahead from the current
    /// transaction.
    func beginUnwinding() { pending.beginUnwinding() }

    /// Records the effect of a later transaction, if the waiting answer contains it. A `change` of nil means that the
    /// transaction does not show the old row.
    func unwind(_ change: (key: [UInt8]?, change: Int)?, xid: UInt32, at lsn: UInt64) {
        if lsn >= followedSince { pending.unwind(change, xid: xid) }
    }

    /// Fills the set from the waiting answer, without the effects of later transactions. If these are not known
    /// (`isLost`), the set decides only from the position of the answer on.
    func unwound(isLost: Bool) {
        guard let (rows, ahead) = pending.takeAnswer() else { return }
        validity.unwound()
        guard !isLost, let ahead else { return take(rows, seenUpTo: rows.position.rawValue) }
        take(rows, seenUpTo: min(followedSince, rows.position.rawValue))
        for (key, change) in ahead { counted.add(key, change) }
        if !counted.areSound { state = .filling }
    }

    /// True if the set was filled with later transactions and says nothing about the ones that the loop reads next.
    public var isOfLaterOnly: Bool { state == .live && validity.isOfLaterOnly }

    /// Makes a filled set wait again, for a channel that must receive the log's next transactions. The contents become
    /// an answer again, from which the hub removes the effects of later transactions. No key comes or goes by that.
    func reopen(for place: UInt32, at now: UInt64) {
        guard let seen = validity.seen, isOfLaterOnly else { return }
        let rows = FilledMembership(
            keys: counted.asFilled, snapshot: seen.visible, position: LSN(rawValue: seen.end))
        let isAsked = pending.isAsked
        forget()
        if isAsked { _ = pending.ask() }
        audience.owe({ _ in false }, and: [place])
        pending.keep(rows, at: now)
        assert(isUnwound && !isSettled, "nobody is judged by what waits to be unwound")
    }

    // MARK: Following

    /// Begins a transaction of the log. Returns true if policies that use the set must be evaluated differently from
    /// this transaction on: the set may contain later transactions, so that the keys at this one are not known.
    func begin(xid: UInt32, at lsn: UInt64) -> Bool {
        assert(state != .filling || validity.measure == .exact, "what is being asked is a measure of nothing")
        let before = validity.measure
        if validity.begin(xid: xid, at: lsn, isOwed: !audience.owed.isEmpty) { audience.owedAreTold() }
        return validity.measure != before
    }

    /// True if the set may contain transactions that the loop has not reached in the log.
    var mayBeAhead: Bool { validity.mayBeAhead }

    /// Applies a row that a transaction added (1) or removed (-1). Returns true if the set's keys or its state changed.
    func apply(_ key: [UInt8]?, _ change: Int, xid: UInt32, at lsn: UInt64) -> Bool {
        switch state {
        case .failed: return false
        case .left:
            touchAll(at: lsn)
            return true
        case .filling:
            pending.add(key, change, xid: xid)
            touch(key, at: lsn)
            return false
        case .live:
            if validity.contains(xid: xid, at: lsn) { return false }
            validity.pass(lsn)
            assert(abs(change) == 1, "a row comes or goes")
            let hadKey = counted.has(key)
            counted.add(key, change)
            if hadKey != counted.has(key) { touch(key, at: lsn) }
            if counted.count > Limits.maximumMembershipKeys { giveUp(.left) }
            return hadKey != counted.has(key) || !isSettled
        }
    }

    /// True if so many effects of transactions are stored that asking PostgreSQL again is cheaper.
    var hasTooManyDeltas: Bool { pending.hasTooManyDeltas }

    /// Removes all rows, because the table was truncated. Returns true if the set had rows.
    func truncate(xid: UInt32, at lsn: UInt64) -> Bool {
        if state == .left {
            touchAll(at: lsn)
            return true
        }
        guard state == .live, !validity.contains(xid: xid, at: lsn) else { return false }
        let hadRows = counted.rowCount > 0
        counted.removeAll()
        touchAll(at: lsn)
        return hadRows
    }

    private func touch(_ key: [UInt8]?, at lsn: UInt64) {
        touched.add(key)
        newestTouched.add(key, by: lsn)
    }

    private func touchAll(at lsn: UInt64) {
        touched.addAll()
        newestTouched.addAll(by: lsn)
    }

    /// False if a row with the key was removed that the set never held.
    func isSound(at key: [UInt8]?) -> Bool { counted.isSound(at: key) }
}

/// Channels and policies that depend on a membership set.
private struct MembershipAudience {
    /// Channels that joined before the set was filled. The hub must tell them about changes on which the set cannot
    /// decide.
    private(set) var owed: Set<UInt32> = []
    /// Policies that use the set, by number.
    private var users: [UInt32: ActivePolicy] = [:]
    /// Indices of the channels that wait for the set to be filled.
    private(set) var waiters: Set<UInt32> = []

    var usersInOrder: [ActivePolicy] { users.keys.sorted().compactMap { users[$0] } }

    mutating func use(by policy: ActivePolicy) { users[policy.number] = policy }
    mutating func letGo(of policy: ActivePolicy) { users[policy.number] = nil }

    mutating func await(by place: UInt32) { waiters.insert(place) }

    mutating func takeWaiters() -> [UInt32] {
        defer { waiters = [] }
        return waiters.sorted()
    }

    mutating func owe(_ isServed: (UInt32) -> Bool, and others: Set<UInt32>) {
        owed = waiters.filter(isServed).union(others)
    }

    mutating func owedAreTold() { owed = [] }
}
