import Catalog
import Change
import Diagnostics
import Judging

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

/// Answer of PostgreSQL to a question for the rows of a set, while the set is being filled: what the log shows meanwhile,
/// and what it has still ahead.
struct PendingFill {
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

    /// Identity of the current filling, so that answers to older ones are ignored; nil if PostgreSQL is not asked for
    /// the set.
    let filling: MembershipFilling?
    /// Number of transactions that the log had shown when the filling began. `deltas` does not contain them.
    private let passed: Int
    /// True while PostgreSQL is being asked.
    private(set) var isAsked = false
    /// Effects of transactions that the log showed while PostgreSQL was being asked.
    private var deltas: [Delta] = []
    /// PostgreSQL's answer, until the log has everything that is in the answer.
    private var answer: Answer?

    init(_ filling: MembershipFilling? = nil, passed: Int = 0) {
        self.filling = filling
        self.passed = passed
    }

    /// True if an answer waits until the log has everything that is in the answer.
    var isAnswered: Bool { answer != nil }
    /// True if so many changes wait to be applied that asking again is cheaper.
    var hasTooManyDeltas: Bool { deltas.count > Limits.maximumMembershipDeltas }

    /// Notes that PostgreSQL is asked. Returns false if it is being asked already.
    mutating func ask() -> Bool {
        defer { isAsked = true }
        return !isAsked
    }

    /// Notes that the answer did not come.
    mutating func isUnanswered() { isAsked = false }

    /// True if PostgreSQL saw all transactions that the log had shown before it was asked. `firstUnseen` is the number of
    /// the first one that it did not see.
    func isComplete(firstUnseen: Int) -> Bool { passed <= firstUnseen }

    /// Notes the effect of a transaction that the log shows while PostgreSQL is being asked.
    mutating func add(_ key: [UInt8]?, _ change: Int, xid: UInt32) {
        deltas.append(Delta(xid: xid, key: key, change: change))
    }

    /// Counts the rows, and the noted effects that are not in them.
    mutating func count(_ rows: FilledMembership, in keys: inout CountedKeys) {
        for key in rows.keys { keys.add(key.text, key.count) }
        for delta in deltas where !rows.snapshot.contains(delta.xid) { keys.add(delta.key, delta.change) }
        deltas = []
    }

    // MARK: Unwinding

    /// Keeps an answer, which contains more than the log has come to.
    mutating func keep(_ rows: FilledMembership, at now: UInt64) { answer = Answer(rows: rows, since: now) }

    func mayUnwind(coveredUpTo covered: UInt64) -> Bool { answer.map { $0.rows.position.rawValue <= covered } ?? false }

    func isTiredOfUnwinding(_ now: UInt64) -> Bool {
        answer.map { now > $0.since + Limits.membershipUnwindPatience.wholeNanoseconds } ?? false
    }

    /// Begins to look through the log from the current transaction on.
    mutating func beginUnwinding() {
        answer?.ahead = []
        answer?.isBlurred = false
    }

    /// Notes the effect of a transaction that the log has still ahead, if the answer contains it. A `change` of nil means
    /// that the transaction does not say what the row was before.
    mutating func unwind(_ change: (key: [UInt8]?, change: Int)?, xid: UInt32) {
        assert(change.map { abs($0.change) == 1 } ?? true, "a row comes or goes")
        guard let answer, answer.rows.snapshot.contains(xid) else { return }
        guard let change else {
            self.answer?.isBlurred = true
            return
        }
        self.answer?.ahead.append((change.key, -change.change))
    }

    /// Removes and returns the answer, with the effects to take out of it; `ahead` is nil if these are not known.
    mutating func takeAnswer() -> (rows: FilledMembership, ahead: [(key: [UInt8]?, change: Int)]?)? {
        defer { answer = nil }
        return answer.map { ($0.rows, $0.isBlurred ? nil : $0.ahead) }
    }
}
