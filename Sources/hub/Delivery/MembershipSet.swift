import Catalog
import Change
import Diagnostics
import Judging
import Policy
import System

/// Identity of one question to PostgreSQL for the rows of a set. The identity stays unique while the loop lives,
/// although a new set may reuse the number of a removed one. So a late answer never goes to another set.
public struct MembershipFilling: Hashable, Sendable {
    let set: UInt32
    private let serial: UInt64

    /// Generator of the identities of fillings.
    struct Desk {
        private var last: UInt64 = 0

        mutating func next(of set: UInt32) -> MembershipFilling {
            last += 1
            return MembershipFilling(set: set, serial: last)
        }
    }

    private init(set: UInt32, serial: UInt64) {
        self.set = set
        self.serial = serial
    }
}

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
    /// Identity of the current filling, so that answers to older ones are ignored; nil if PostgreSQL is not asked for
    /// the set.
    public private(set) var filling: MembershipFilling?
    /// Number of transactions that the log had shown when the filling began. `deltas` does not contain them.
    private var passed = 0
    private(set) var state = State.filling
    /// True while PostgreSQL is being asked.
    var isAsked = false
    private var counts: [[UInt8]: Int] = [:]
    private var nullCount = 0
    private var rowCount = 0
    /// Effects of transactions that the log showed while PostgreSQL was being asked.
    private var deltas: [Delta] = []
    /// PostgreSQL's answer, until the log has everything that is in the answer.
    private var answer: Answer?
    /// Position from which the log has every change of the table.
    public let followedSince: UInt64
    /// Positions at which the members can no longer be determined.
    private let unknownPast: UnknownPast
    /// Transactions that PostgreSQL had seen when it filled the set; nil once the log has passed all of them.
    private var seen: SeenTransactions?
    public private(set) var measure = Measure.exact
    /// True if the transactions that the log had ahead were taken out of the answer, or it was found that this is
    /// impossible.
    private var wasUnwound = false

    /// Validity of the set for the current transaction.
    public enum Measure {
        case exact
        /// The transaction was committed before the log had all of the membership's table. PostgreSQL decides, as for
        /// tables that are not followed.
        case notYetFollowed
        /// The transaction is older than the rows that filled the set, and the members at that time are no longer
        /// known.
        case tooNew
    }
    /// Channels that were served before the set was filled. The hub must tell them about changes that the set cannot
    /// decide.
    public var owed: Set<UInt32> = []
    /// Policies that judge by the set, by number.
    public var users: [UInt32: ActivePolicy] = [:]
    /// Policies that judge by the set, in an order that does not differ between runs.
    public var usersInOrder: [ActivePolicy] { users.keys.sorted().compactMap { users[$0] } }
    /// Channels that wait for the set, by index.
    public var waiters: Set<UInt32> = []

    private struct Delta {
        var xid: UInt32
        var key: [UInt8]?
        var change: Int
    }

    /// PostgreSQL's answer, and the effects in it that the log has still ahead.
    private struct Answer {
        let rows: FilledMembership
        var ahead: [(key: [UInt8]?, change: Int)] = []
        /// True if a change that the log has ahead does not say what the row was before.
        var isBlurred = false
        let since: UInt64
    }

    public init(
        _ held: HeldMembership, _ claimant: PolicySubject, _ table: CatalogTable, number: UInt32 = 0,
        filling: MembershipFilling? = nil, passed: Int = 0, followedSince: UInt64 = 0,
        unknownPast: UnknownPast = .none
    ) {
        self.filling = filling
        self.followedSince = followedSince
        self.unknownPast = unknownPast
        self.held = held
        self.claimant = claimant
        self.table = table
        self.number = number
        self.passed = passed
    }

    public var keys: MembershipKeys {
        MembershipKeys(
            keys: counts.keys.sorted { $0.lexicographicallyPrecedes($1) }, hasNull: nullCount > 0,
            hasRows: rowCount > 0,
            // If the set is too new, asking would not help: PostgreSQL only knows the present members.
            hasFailed: state == .failed || measure == .tooNew,
            isUnknown: state == .left || state == .filling || measure == .notYetFollowed)
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

    /// True if decisions can use the set.
    public var isSettled: Bool { state != .filling }

    func keyColumn(_ slot: Int) -> RowTexts.Wanted { RowTexts.Wanted(table.columns[slot]) }

    // MARK: Filling

    /// Forgets all contents, so that PostgreSQL can fill the set again.
    func discard(passed: Int, for filling: MembershipFilling) {
        forget()
        self.filling = filling
        self.passed = passed
    }

    private func forget() {
        filling = nil
        isAsked = false
        state = .filling
        counts = [:]
        nullCount = 0
        rowCount = 0
        deltas = []
        answer = nil
        seen = nil
        measure = .exact
        wasUnwound = false
        owed = []
    }

    /// Takes PostgreSQL's answer. False if the hub must ask again, because PostgreSQL did not see a transaction that
    /// the log had already shown. `firstUnseen` is the number of the first such transaction.
    public func fill(_ rows: FilledMembership, firstUnseen: Int, at now: UInt64) -> Bool {
        assert(state == .filling && answer == nil, "an answer is to what is being asked")
        guard passed <= firstUnseen else { return false }
        guard rows.keys.count <= Limits.maximumMembershipKeys else {
            giveUp(.left)
            return true
        }
        // Channels that are already served are judged as before, and not by rows that come only later.
        if !owed.isEmpty {
            answer = Answer(rows: rows, since: now)
            return true
        }
        take(rows, seenUpTo: rows.position.rawValue)
        return state == .live
    }

    private func take(_ rows: FilledMembership, seenUpTo end: UInt64) {
        for key in rows.keys { add(key.text, key.count) }
        for delta in deltas where !rows.snapshot.contains(delta.xid) { add(delta.key, delta.change) }
        deltas = []
        answer = nil
        seen = SeenTransactions(visible: rows.snapshot, end: end)
        state = isSound ? .live : .filling
        assert(deltas.isEmpty && answer == nil, "nothing is left to be counted")
    }

    public func giveUp(_ end: State) {
        assert(end == .failed || end == .left, "giving up is an end")
        forget()
        state = end
        assert(counts.isEmpty && rowCount == 0, "who gave up counts nobody as a member")
    }

    // MARK: Unwinding

    /// True if an answer waits until the log has everything that is in the answer.
    var isUnwound: Bool { answer != nil }

    func mayUnwind(coveredUpTo covered: UInt64) -> Bool { answer.map { $0.rows.position.rawValue <= covered } ?? false }

    func isTiredOfUnwinding(_ now: UInt64) -> Bool {
        answer.map { now > $0.since + Limits.membershipUnwindPatience.wholeNanoseconds } ?? false
    }

    /// Begins to look through the log from the current transaction on.
    func beginUnwinding() {
        answer?.ahead = []
        answer?.isBlurred = false
    }

    /// Takes the effect of a transaction that the log has still ahead out of the answer, if the answer contains it. A
    /// `change` of nil means that the transaction does not say what the row was before.
    func unwind(_ change: (key: [UInt8]?, change: Int)?, xid: UInt32, at lsn: UInt64) {
        assert(change.map { abs($0.change) == 1 } ?? true, "a row comes or goes")
        guard let answer, lsn >= followedSince, answer.rows.snapshot.contains(xid) else { return }
        guard let change else {
            self.answer?.isBlurred = true
            return
        }
        self.answer?.ahead.append((change.key, -change.change))
    }

    /// Ends the look through the log: the set is as it was at the current transaction. If that cannot be known
    /// (`isLost`), the set decides only from the position of PostgreSQL's answer on.
    func unwound(isLost: Bool) {
        guard let answer else { return }
        wasUnwound = true
        guard !isLost, !answer.isBlurred else { return take(answer.rows, seenUpTo: answer.rows.position.rawValue) }
        take(answer.rows, seenUpTo: min(followedSince, answer.rows.position.rawValue))
        for (key, change) in answer.ahead { add(key, change) }
        if !isSound { state = .filling }
    }

    /// True if the set was filled for channels that are promised none of the log's next transactions, and says nothing
    /// about those.
    public var isOfLaterOnly: Bool {
        state == .live && !wasUnwound && seen.map { $0.end > followedSince } ?? false
    }

    /// Prepares the set for a channel that is promised the log's next transactions. The contents become an answer
    /// again, from which the transactions that the log has ahead are taken out.
    func reopen(for place: UInt32, at now: UInt64) {
        guard let seen, isOfLaterOnly else { return }
        var keys = counts.keys.sorted { $0.lexicographicallyPrecedes($1) }.map {
            FilledMembership.Key(text: $0, count: counts[$0] ?? 0)
        }
        let withoutText = held.membership.keySlot == nil ? rowCount : nullCount
        if withoutText > 0 { keys.append(FilledMembership.Key(text: nil, count: withoutText)) }
        let rows = FilledMembership(keys: keys, snapshot: seen.visible, position: LSN(rawValue: seen.end))
        let isAsked = isAsked
        forget()
        self.isAsked = isAsked
        owed = [place]
        answer = Answer(rows: rows, since: now)
        assert(isUnwound && !isSettled, "nobody is judged by what waits to be unwound")
    }

    // MARK: Following

    /// Begins a transaction. True if rows must be judged differently from here on: the rows that filled the set may be
    /// newer than this transaction, and do not say who was a member at that time.
    func begin(xid: UInt32, at lsn: UInt64) -> Bool {
        guard let seen else { return false }
        assert(state != .filling || measure == .exact, "what is being asked is a measure of nothing")
        let before = measure
        measure = .exact
        if !seen.isBehind(lsn), seen.contains(xid) {
            let wasNeverFollowed = lsn < followedSince && !unknownPast.contains(LSN(lsn))
            measure = wasNeverFollowed && !owed.isEmpty ? .notYetFollowed : .tooNew
        }
        if seen.isBehind(lsn) {
            self.seen = nil
            owed = []
        }
        return measure != before
    }

    /// True if the log may still come to transactions that the set was filled with.
    var mayBeAhead: Bool { seen != nil }

    /// Applies a row that a transaction adds or removes. True if the set has changed.
    func apply(_ key: [UInt8]?, _ change: Int, xid: UInt32, at lsn: UInt64) -> Bool {
        switch state {
        case .failed, .left: return false
        case .filling:
            deltas.append(Delta(xid: xid, key: key, change: change))
            return false
        case .live:
            if let seen {
                if seen.isBehind(lsn) { self.seen = nil } else if seen.contains(xid) { return false }
            }
            assert(abs(change) == 1, "a row comes or goes")
            let hadKey = has(key)
            add(key, change)
            if counts.count > Limits.maximumMembershipKeys { giveUp(.left) }
            return hadKey != has(key) || !isSettled
        }
    }

    /// True if so many changes wait to be applied that asking again is cheaper.
    var hasTooManyDeltas: Bool { deltas.count > Limits.maximumMembershipDeltas }

    /// Removes all rows, because the table was truncated. True if the set had rows.
    func truncate(xid: UInt32, at lsn: UInt64) -> Bool {
        if let seen, !seen.isBehind(lsn), seen.contains(xid) { return false }
        guard state == .live else { return false }
        let hadRows = rowCount > 0
        counts = [:]
        nullCount = 0
        rowCount = 0
        return hadRows
    }

    /// False if a row was removed that was never there: the counts are wrong then.
    private var isSound: Bool { rowCount >= 0 && nullCount >= 0 && !counts.values.contains { $0 < 0 } }

    func isSound(at key: [UInt8]?) -> Bool {
        rowCount >= 0 && nullCount >= 0 && (key.map { counts[$0] ?? 0 } ?? 0) >= 0
    }

    private func has(_ key: [UInt8]?) -> Bool {
        guard held.membership.keySlot != nil else { return rowCount > 0 }
        return key.map { counts[$0] ?? 0 > 0 } ?? (nullCount > 0)
    }

    private func add(_ key: [UInt8]?, _ change: Int) {
        rowCount += change
        guard held.membership.keySlot != nil else { return }
        guard let key else {
            nullCount += change
            return
        }
        let count = (counts[key] ?? 0) + change
        counts[key] = count == 0 ? nil : count
        assert(counts[key] != 0, "a key that nothing gives is no key")
    }
}

/// Transactions that the log has shown lately. PostgreSQL may not show their effects yet.
struct PassedTransactions {
    private var xids: [UInt32] = []
    /// Number of transactions ever noted.
    private(set) var count = 0
    private static let kept = 65_536

    mutating func note(_ xid: UInt32) {
        if xids.count < Self.kept {
            xids.append(xid)
        } else {
            xids[count % Self.kept] = xid
        }
        count += 1
        assert(xids.count == min(count, Self.kept), "it remembers the last ones")
    }

    /// Returns the number of the first transaction that `seen` does not contain; the next transaction's number if it
    /// contains all.
    func firstUnseen(in seen: VisibleTransactions) -> Int {
        var first = count
        for place in xids.indices where !seen.contains(xids[place]) {
            first = min(first, number(at: place))
        }
        return first
    }

    private func number(at place: Int) -> Int {
        let newest = (count - 1) % Self.kept
        return place <= newest ? count - 1 - (newest - place) : count - 1 - newest - (Self.kept - place)
    }
}
