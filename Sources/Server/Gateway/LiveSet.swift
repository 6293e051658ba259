import Change
import Diagnostics
import Policy

/// The keys one holder has by a membership: filled by PostgreSQL, then kept from the log, transaction by transaction.
///
/// It counts rows, so that a key stays for as long as one row gives it.
final class LiveSet {
    enum State: Equatable {
        /// PostgreSQL has not said yet which rows there are: nobody may be judged by it.
        case filling
        case live
        /// Reading the rows failed, and would again: whoever depends on it sees nothing.
        case failed
        /// Its keys are too many to keep, or cannot be read here: PostgreSQL decides on each row.
        case left
    }

    let held: HeldMembership
    let claimant: Claimant
    /// The membership's table as the catalog had it.
    let table: CatalogTable
    /// Its number on the desk.
    let number: UInt32
    /// Tells one filling from the next: an answer to an older one is of no use.
    private(set) var filling: UInt32 = 0
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
    /// What PostgreSQL had seen when it filled the set, for as long as the log may still come to some of it.
    private var seen: SeenTransactions?
    /// Who judges by it.
    var users: [ObjectIdentifier: HeldPolicy] = [:]
    /// Channels that wait for it, by place.
    var waiters: Set<UInt32> = []

    private struct Delta {
        var xid: UInt32
        var key: [UInt8]?
        var change: Int
    }

    init(_ held: HeldMembership, _ claimant: Claimant, _ table: CatalogTable, number: UInt32, passed: Int) {
        self.held = held
        self.claimant = claimant
        self.table = table
        self.number = number
        self.passed = passed
    }

    var keys: MembershipKeys {
        MembershipKeys(
            keys: counts.keys.sorted { $0.lexicographicallyPrecedes($1) }, hasNull: nullCount > 0,
            hasRows: rowCount > 0,
            hasFailed: state == .failed, isUnknown: state == .left || state == .filling)
    }

    /// Whether a judgement can be made with it.
    var isSettled: Bool { state != .filling }

    func keyColumn(_ slot: Int) -> RowTexts.Wanted { RowTexts.Wanted(table.columns[slot]) }

    // MARK: Filling

    /// Forgets everything; to be filled anew.
    func discard(passed: Int) {
        filling &+= 1
        isAsked = false
        self.passed = passed
        state = .filling
        counts = [:]
        nullCount = 0
        rowCount = 0
        deltas = []
        seen = nil
    }

    /// False when PostgreSQL is to be asked again: it did not see what the log had already shown. `firstUnseen` is the
    /// number of the first transaction of which that is so.
    func fill(_ rows: FilledMembership, firstUnseen: Int) -> Bool {
        guard passed <= firstUnseen else { return false }
        guard rows.keys.count <= Limits.maximumMembershipKeys else {
            giveUp(.left)
            return true
        }
        for key in rows.keys { add(key.text, key.count) }
        for delta in deltas where !rows.snapshot.contains(delta.xid) { add(delta.key, delta.change) }
        deltas = []
        seen = SeenTransactions(visible: rows.snapshot, end: rows.position.rawValue)
        state = isSound ? .live : .filling
        return state == .live
    }

    func giveUp(_ end: State) {
        discard(passed: passed)
        state = end
    }

    // MARK: Following

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
    }
}

/// The transactions that one reading of the database saw.
struct SeenTransactions: Sendable {
    var visible: VisibleTransactions
    /// All that was visible was committed before this position.
    var end: UInt64

    func contains(_ xid: UInt32) -> Bool { visible.contains(xid) }

    /// What is committed at `lsn` or later was not seen.
    func isBehind(_ lsn: UInt64) -> Bool { lsn >= end }
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
