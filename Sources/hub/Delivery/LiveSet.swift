import Catalog
import Change
import Diagnostics
import Judging
import Policy
import System

/// One asking of PostgreSQL which rows there are for a set. None is like another for as long as the loop lives, while sets
/// take the numbers of those that went: an answer that comes late is nobody else's.
public struct MembershipFilling: Hashable, Sendable {
    let set: UInt32
    private let serial: UInt64

    /// Hands them out.
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

/// The keys one holder has by a membership: filled by PostgreSQL, then kept from the log, transaction by transaction.
///
/// It counts rows, so that a key stays for as long as one row gives it.
public final class LiveSet {
    public enum State: Equatable {
        /// PostgreSQL has not said yet which rows there are: nobody may be judged by it.
        case filling
        case live
        /// Reading the rows failed, and would again: whoever depends on it sees nothing.
        case failed
        /// Its keys are too many to keep, or cannot be read here: PostgreSQL decides on each row.
        case left
    }

    public let held: HeldMembership
    public let claimant: Claimant
    /// The membership's table as the catalog had it.
    public let table: CatalogTable
    /// Its number on the desk.
    public let number: UInt32
    /// Tells one filling from the next: an answer to an older one is of no use. Nil where nobody is asked for it.
    public private(set) var filling: MembershipFilling?
    /// How many transactions the log had shown when the filling began: they are not among the deltas.
    private var passed = 0
    private(set) var state = State.filling
    /// PostgreSQL is being asked.
    var isAsked = false
    private var counts: [[UInt8]: Int] = [:]
    private var nullCount = 0
    private var rowCount = 0
    /// What transactions did while PostgreSQL was asked.
    private var deltas: [Delta] = []
    /// PostgreSQL's answer, until the log has all that is in it.
    private var answer: Answer?
    /// The log has every change of the table from here on.
    public let followedSince: UInt64
    /// Earlier positions at which the log had every change, before that was interrupted.
    private let unknownPast: UnknownPast
    /// What PostgreSQL had seen when it filled the set, for as long as the log may still come to some of it.
    private var seen: SeenTransactions?
    public private(set) var measure = Measure.exact
    /// What the log had ahead was taken out of the answer, or it was found that this cannot be done.
    private var wasUnwound = false

    /// What the set is for the transaction at hand.
    public enum Measure {
        case exact
        /// That one was committed before the log had all of the membership's table: PostgreSQL decides, as it does where
        /// tables are not followed.
        case notYetFollowed
        /// That one is older than what the set was filled with, and who was a member then is not known any more.
        case tooNew
    }
    /// Channels that were served before the set was filled, and so are to be told of what it cannot say.
    public var owed: Set<UInt32> = []
    /// Who judges by it, by number.
    public var users: [UInt32: ActivePolicy] = [:]
    /// The same in an order that does not differ between runs.
    public var usersInOrder: [ActivePolicy] { users.keys.sorted().compactMap { users[$0] } }
    /// Channels that wait for it, by place.
    public var waiters: Set<UInt32> = []

    private struct Delta {
        var xid: UInt32
        var key: [UInt8]?
        var change: Int
    }

    /// What PostgreSQL said, and what of it the log has still to come to.
    private struct Answer {
        let rows: FilledMembership
        var ahead: [(key: [UInt8]?, change: Int)] = []
        /// What the log has ahead does not say what was before.
        var isBlurred = false
        let since: UInt64
    }

    public init(
        _ held: HeldMembership, _ claimant: Claimant, _ table: CatalogTable, number: UInt32 = 0,
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
            // Where it is too new asking would not help: PostgreSQL knows who is a member now.
            hasFailed: state == .failed || measure == .tooNew,
            isUnknown: state == .left || state == .filling || measure == .notYetFollowed)
    }

    /// What it reads of its table, as the catalog had that.
    var columns: [CatalogColumn] { LiveSet.columns(held, of: table) }

    /// Whether the table, as the catalog has it now, gives the same keys.
    public func stands(on other: CatalogTable) -> Bool {
        table === other || table.oid == other.oid && columns == LiveSet.columns(held, of: other)
    }

    static func columns(_ held: HeldMembership, of table: CatalogTable) -> [CatalogColumn] {
        let slots = Set(held.rows.slots + (held.membership.keySlot.map { [$0] } ?? []))
        return slots.sorted().compactMap { table.columns.indices.contains($0) ? table.columns[$0] : nil }
    }

    /// Whether a judgement can be made with it.
    public var isSettled: Bool { state != .filling }

    func keyColumn(_ slot: Int) -> RowTexts.Wanted { RowTexts.Wanted(table.columns[slot]) }

    // MARK: Filling

    /// Forgets everything; to be filled anew.
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

    /// False when PostgreSQL is to be asked again: it did not see what the log had already shown. `firstUnseen` is the
    /// number of the first transaction of which that is so.
    public func fill(_ rows: FilledMembership, firstUnseen: Int, at now: UInt64) -> Bool {
        assert(state == .filling && answer == nil, "an answer is to what is being asked")
        guard passed <= firstUnseen else { return false }
        guard rows.keys.count <= Limits.maximumMembershipKeys else {
            giveUp(.left)
            return true
        }
        // Who is served already is to be judged on as before, and not by what comes only later.
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

    /// Whether an answer waits until the log has all that is in it.
    var isUnwound: Bool { answer != nil }

    func mayUnwind(coveredUpTo covered: UInt64) -> Bool { answer.map { $0.rows.position.rawValue <= covered } ?? false }

    func isTiredOfUnwinding(_ now: UInt64) -> Bool {
        answer.map { now > $0.since + Limits.membershipUnwindPatience.wholeNanoseconds } ?? false
    }

    /// The log is looked through from the transaction at hand on.
    func beginUnwinding() {
        answer?.ahead = []
        answer?.isBlurred = false
    }

    /// A transaction that the log has yet to come to is in the answer: what it did is taken out again. Nil: it did something
    /// that does not say what was before.
    func unwind(_ change: (key: [UInt8]?, change: Int)?, xid: UInt32, at lsn: UInt64) {
        assert(change.map { abs($0.change) == 1 } ?? true, "a row comes or goes")
        guard let answer, lsn >= followedSince, answer.rows.snapshot.contains(xid) else { return }
        guard let change else {
            self.answer?.isBlurred = true
            return
        }
        self.answer?.ahead.append((change.key, -change.change))
    }

    /// The log has been looked through: the set is as it was at the transaction at hand, or, where that cannot be known
    /// (`isLost`), it is a measure only for what comes when the log has come as far as the answer.
    func unwound(isLost: Bool) {
        guard let answer else { return }
        wasUnwound = true
        guard !isLost, !answer.isBlurred else { return take(answer.rows, seenUpTo: answer.rows.position.rawValue) }
        take(answer.rows, seenUpTo: min(followedSince, answer.rows.position.rawValue))
        for (key, change) in answer.ahead { add(key, change) }
        if !isSound { state = .filling }
    }

    /// It was filled for those who are promised nothing of what the log comes to next, and says nothing of that.
    public var isOfLaterOnly: Bool {
        state == .live && !wasUnwound && seen.map { $0.end > followedSince } ?? false
    }

    /// Somebody comes who is promised it: what the set holds is an answer again, of which is taken out what the log has ahead.
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

    /// A transaction begins. True where rows have to be judged otherwise from here on: what PostgreSQL had seen when it
    /// filled the set may hold more than this transaction, and says nothing of who was a member at it.
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

    /// Whether the log may still come to transactions that the set was filled with.
    var mayBeAhead: Bool { seen != nil }

    /// Takes what one row of a transaction adds or takes away; true when the set is another now.
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

    /// So many changes wait to be applied that asking anew is cheaper.
    var hasTooManyDeltas: Bool { deltas.count > Limits.maximumMembershipDeltas }

    /// All rows are gone.
    func truncate(xid: UInt32, at lsn: UInt64) -> Bool {
        if let seen, !seen.isBehind(lsn), seen.contains(xid) { return false }
        guard state == .live else { return false }
        let hadRows = rowCount > 0
        counts = [:]
        nullCount = 0
        rowCount = 0
        return hadRows
    }

    /// Not if a row was taken away that was never there: what is counted is wrong then.
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

/// The transactions that the log has shown lately: PostgreSQL may still not show what they did.
struct PassedTransactions {
    private var xids: [UInt32] = []
    /// How many there ever were.
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

    /// The number of the first one whose work was not seen; that of the next one where all was.
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
