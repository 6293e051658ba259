import Catalog
import Change
import Diagnostics
import Judging
import Policy
import System

/// Keys that one holder has by a membership: PostgreSQL fills the set, then the log keeps it current, transaction by
/// transaction.
///
/// The set counts rows, so that a key stays for as long as one row gives it.
public final class MembershipSet {
    public enum State: Equatable {
        /// PostgreSQL has not said yet which rows there are: no decision may use the set.
        case filling
        case live
        /// Reading the rows failed, and would fail again: a holder that depends on the set sees nothing.
        case failed
        /// The keys are too many to keep, or the hub cannot read them: PostgreSQL decides on each row.
        case left
    }

    public let held: HeldMembership
    public let claimant: PolicySubject
    /// Table of the membership, as the catalog had it.
    public let table: CatalogTable
    /// Index of this set in `LiveMemberships`.
    public let number: UInt32
    private(set) var state = State.filling
    private var counted: CountedKeys
    private var pending: PendingFill
    private var validity: MembershipValidity
    private var audience = MembershipAudience()

    public init(
        _ held: HeldMembership, _ claimant: PolicySubject, _ table: CatalogTable, number: UInt32 = 0,
        filling: MembershipFilling? = nil, passed: Int = 0, followedSince: UInt64 = 0,
        unknownPast: UnknownPast = .none
    ) {
        self.held = held
        self.claimant = claimant
        self.table = table
        self.number = number
        counted = CountedKeys(areKeyed: held.membership.keySlot != nil)
        pending = PendingFill(filling, passed: passed)
        validity = MembershipValidity(followedSince: followedSince, unknownPast: unknownPast)
    }

    public var keys: MembershipKeys {
        MembershipKeys(
            keys: counted.inOrder, hasNull: counted.nullCount > 0, hasRows: counted.rowCount > 0,
            // If the set is too new, asking would not help: PostgreSQL only knows the present members.
            hasFailed: state == .failed || validity.measure == .tooNew,
            isUnknown: state == .left || state == .filling || validity.measure == .notYetFollowed)
    }

    /// Columns that the set reads of its table, as the catalog had them.
    var columns: [CatalogColumn] { MembershipSet.columns(held, of: table) }

    /// True if the table, as the catalog has it now, gives the same keys.
    public func stands(on other: CatalogTable) -> Bool {
        table === other || table.oid == other.oid && columns == MembershipSet.columns(held, of: other)
    }

    static func columns(_ held: HeldMembership, of table: CatalogTable) -> [CatalogColumn] {
        let slots = Set(held.rows.slots + (held.membership.keySlot.map { [$0] } ?? []))
        return slots.sorted().compactMap { table.columns.indices.contains($0) ? table.columns[$0] : nil }
    }

    /// True if PostgreSQL refused to fill the set, or the keys are too many to keep.
    var isRefused: Bool { state == .failed || state == .left }

    /// True if decisions can use the set.
    public var isSettled: Bool { state != .filling }

    func keyColumn(_ slot: Int) -> RowTexts.Wanted { RowTexts.Wanted(table.columns[slot]) }

    // MARK: Channels and policies

    /// Channels that wait for the set, in an order that does not differ between runs.
    public var waitersInOrder: [UInt32] { audience.waiters.sorted() }
    public var isAwaited: Bool { !audience.waiters.isEmpty }
    /// Policies that judge by the set, in an order that does not differ between runs.
    public var usersInOrder: [ActivePolicy] { audience.usersInOrder }

    /// Notes that the channel waits for the set.
    public func await(by place: UInt32) { audience.await(by: place) }

    /// Removes and returns the channels that waited, because the set is settled.
    public func takeWaiters() -> [UInt32] { audience.takeWaiters() }

    /// Notes which of the waiting channels were served before the set is filled, and `others` that were. The hub must
    /// tell them about changes that the set cannot decide.
    public func owe(_ isServed: (UInt32) -> Bool, and others: Set<UInt32>) { audience.owe(isServed, and: others) }

    /// True if the channel was served before the set was filled.
    public func isOwed(_ place: UInt32) -> Bool { audience.owed.contains(place) }

    /// Forgets the channels that were served before, because they have been told.
    public func owedAreTold() { audience.owedAreTold() }

    func use(by policy: ActivePolicy) { audience.use(by: policy) }
    func letGo(of policy: ActivePolicy) { audience.letGo(of: policy) }

    // MARK: Filling

    /// Identity of the current filling; nil if PostgreSQL is not asked for the set.
    public var filling: MembershipFilling? { pending.filling }
    /// Position from which the log has every change of the table.
    public var followedSince: UInt64 { validity.followedSince }
    /// True if nobody can know any more who was a member at the current transaction.
    public var isTooNew: Bool { validity.measure == .tooNew }

    /// Notes that PostgreSQL is to be asked for the set. Returns false if it is being asked, or need not be.
    func ask() -> Bool { !isSettled && pending.ask() }

    /// Notes that the answer did not come.
    func isUnanswered() { pending.isUnanswered() }

    /// Forgets all contents, so that PostgreSQL can fill the set again.
    func discard(passed: Int, for filling: MembershipFilling) {
        forget()
        pending = PendingFill(filling, passed: passed)
    }

    private func forget() {
        state = .filling
        counted.removeAll()
        pending = PendingFill()
        validity.forget()
        audience.owedAreTold()
    }

    /// Takes PostgreSQL's answer. False if the hub must ask again, because PostgreSQL did not see a transaction that
    /// the log had already shown. `firstUnseen` is the number of the first such transaction.
    public func fill(_ rows: FilledMembership, firstUnseen: Int, at now: UInt64) -> Bool {
        assert(state == .filling && !isUnwound, "an answer is to what is being asked")
        guard pending.isComplete(firstUnseen: firstUnseen) else { return false }
        guard rows.keys.count <= Limits.maximumMembershipKeys else {
            giveUp(.left)
            return true
        }
        // Channels that are already served are judged as before, and not by rows that come only later.
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

    public func giveUp(_ end: State) {
        assert(end == .failed || end == .left, "giving up is an end")
        forget()
        state = end
        assert(counted.isEmpty, "who gave up counts nobody as a member")
    }

    // MARK: Unwinding

    /// True if an answer waits until the log has everything that is in the answer.
    var isUnwound: Bool { pending.isAnswered }

    func mayUnwind(coveredUpTo covered: UInt64) -> Bool { pending.mayUnwind(coveredUpTo: covered) }

    func isTiredOfUnwinding(_ now: UInt64) -> Bool { pending.isTiredOfUnwinding(now) }

    /// Begins to look through the log from the current transaction on.
    func beginUnwinding() { pending.beginUnwinding() }

    /// Takes the effect of a transaction that the log has still ahead out of the answer, if the answer contains it. A
    /// `change` of nil means that the transaction does not say what the row was before.
    func unwind(_ change: (key: [UInt8]?, change: Int)?, xid: UInt32, at lsn: UInt64) {
        if lsn >= followedSince { pending.unwind(change, xid: xid) }
    }

    /// Ends the look through the log: the set is as it was at the current transaction. If that cannot be known
    /// (`isLost`), the set decides only from the position of PostgreSQL's answer on.
    func unwound(isLost: Bool) {
        guard let (rows, ahead) = pending.takeAnswer() else { return }
        validity.unwound()
        guard !isLost, let ahead else { return take(rows, seenUpTo: rows.position.rawValue) }
        take(rows, seenUpTo: min(followedSince, rows.position.rawValue))
        for (key, change) in ahead { counted.add(key, change) }
        if !counted.areSound { state = .filling }
    }

    /// True if the set was filled for channels that are promised none of the log's next transactions, and says nothing
    /// about those.
    public var isOfLaterOnly: Bool { state == .live && validity.isOfLaterOnly }

    /// Prepares the set for a channel that is promised the log's next transactions. The contents become an answer
    /// again, from which the transactions that the log has ahead are taken out.
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

    /// Begins a transaction. True if rows must be judged differently from here on: the rows that filled the set may be
    /// newer than this transaction, and do not say who was a member at that time.
    func begin(xid: UInt32, at lsn: UInt64) -> Bool {
        assert(state != .filling || validity.measure == .exact, "what is being asked is a measure of nothing")
        let before = validity.measure
        if validity.begin(xid: xid, at: lsn, isOwed: !audience.owed.isEmpty) { audience.owedAreTold() }
        return validity.measure != before
    }

    /// True if the log may still come to transactions that the set was filled with.
    var mayBeAhead: Bool { validity.mayBeAhead }

    /// Applies a row that a transaction adds or removes. True if the set has changed.
    func apply(_ key: [UInt8]?, _ change: Int, xid: UInt32, at lsn: UInt64) -> Bool {
        switch state {
        case .failed, .left: return false
        case .filling:
            pending.add(key, change, xid: xid)
            return false
        case .live:
            if validity.contains(xid: xid, at: lsn) { return false }
            validity.pass(lsn)
            assert(abs(change) == 1, "a row comes or goes")
            let hadKey = counted.has(key)
            counted.add(key, change)
            if counted.count > Limits.maximumMembershipKeys { giveUp(.left) }
            return hadKey != counted.has(key) || !isSettled
        }
    }

    /// True if so many changes wait to be applied that asking again is cheaper.
    var hasTooManyDeltas: Bool { pending.hasTooManyDeltas }

    /// Removes all rows, because the table was truncated. True if the set had rows.
    func truncate(xid: UInt32, at lsn: UInt64) -> Bool {
        guard state == .live, !validity.contains(xid: xid, at: lsn) else { return false }
        let hadRows = counted.rowCount > 0
        counted.removeAll()
        return hadRows
    }

    /// False if a row with the key was removed that was never there.
    func isSound(at key: [UInt8]?) -> Bool { counted.isSound(at: key) }
}

/// Channels and policies that depend on a membership set.
private struct MembershipAudience {
    /// Channels that were served before the set was filled. The hub must tell them about changes that the set cannot
    /// decide.
    private(set) var owed: Set<UInt32> = []
    /// Policies that judge by the set, by number.
    private var users: [UInt32: ActivePolicy] = [:]
    /// Channels that wait for the set, by index.
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
