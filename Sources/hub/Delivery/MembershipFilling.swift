import Catalog
import Change
import Diagnostics
import Judging

/// Identity of one question to PostgreSQL for the rows of a set. It is unique on the loop, even if a new set reuses the
/// number of a removed one. So a late answer cannot reach the wrong set.
public struct MembershipFilling: Hashable, Sendable {
    let set: UInt32
    private let serial: UInt64

    /// Generator of filling identities, which are unique on one loop.
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

/// State of a set while PostgreSQL fills it. It holds the effects of transactions that the loop has read since the
/// question, and PostgreSQL's answer while that contains later transactions than the loop has read.
struct PendingFill {
    private struct Delta {
        var xid: UInt32
        var key: [UInt8]?
        var change: Int
    }

    /// Answer of PostgreSQL that fills a set, and the effects of later transactions to remove from it.
    private struct Answer {
        let rows: FilledMembership
        var ahead: [(key: [UInt8]?, change: Int)] = []
        /// True if some later transaction lacks its old row, so that its effect cannot be removed from the answer.
        var lacksOldRow = false
        let keptAt: UInt64
        /// Time since which the answer has waited, without the time for which the log stood.
        var since: UInt64
    }

    /// Identity of the current filling, by which answers to earlier ones are ignored; nil if the set is not being
    /// filled.
    let filling: MembershipFilling?
    /// Number of transactions that the loop had read from the log when the filling began. `deltas` starts after these.
    private let passed: Int
    /// True while a question to PostgreSQL to fill the set is under way.
    private(set) var isAsked = false
    /// Effects on the set of the transactions that the loop has read since the filling began.
    private var deltas: [Delta] = []
    /// Answer of PostgreSQL that waits until the log has every transaction in it; nil if none waits.
    private var answer: Answer?

    init(_ filling: MembershipFilling? = nil, passed: Int = 0) {
        self.filling = filling
        self.passed = passed
    }

    /// True if an answer of PostgreSQL waits until the log has every transaction in it.
    var isAnswered: Bool { answer != nil }
    /// True if so many effects of transactions are stored that asking PostgreSQL again is cheaper.
    var hasTooManyDeltas: Bool { deltas.count > Limits.maximumMembershipDeltas }

    /// Records that the hub asks PostgreSQL to fill the set. Returns false if a question is already under way.
    mutating func ask() -> Bool {
        defer { isAsked = true }
        return !isAsked
    }

    /// Records that PostgreSQL did not answer the question to fill the set.
    mutating func isUnanswered() { isAsked = false }

    /// True if PostgreSQL's answer contains all transactions that the loop had read before the question. `firstUnseen`
    /// is the number of the first transaction that the answer does not contain.
    func isComplete(firstUnseen: Int) -> Bool { passed <= firstUnseen }

    /// Stores the effect of a transaction that the loop reads while the set is being filled.
    mutating func add(_ key: [UInt8]?, _ change: Int, xid: UInt32) {
        deltas.append(Delta(xid: xid, key: key, change: change))
    }

    /// Counts the answer's rows in `keys`, and the stored effects that the answer does not contain.
    mutating func count(_ rows: FilledMembership, in keys: inout CountedKeys) {
        for key in rows.keys { keys.add(key.text, key.count) }
        for delta in deltas where !rows.snapshot.contains(delta.xid) { keys.add(delta.key, delta.change) }
        deltas = []
    }

    // MARK: Unwinding

    /// Keeps an answer that contains transactions which the loop has not reached in the log.
    mutating func keep(_ rows: FilledMembership, at now: UInt64) {
        answer = Answer(rows: rows, keptAt: now, since: now)
    }

    /// True if an answer of PostgreSQL waits and the log has every transaction in it.
    func mayUnwind(coveredUpTo covered: UInt64) -> Bool { answer.map { $0.rows.position.rawValue <= covered } ?? false }

    /// True if an answer of PostgreSQL has waited for the maximum time.
    func isTiredOfUnwinding(_ now: UInt64) -> Bool {
        answer.map { answer in
            now > answer.since + Limits.membershipUnwindPatience.wholeNanoseconds
                || now > answer.keptAt + Limits.membershipStandstillPatience.wholeNanoseconds
        } ?? false
    }

    /// Records that nothing reached the log for this time up to `now`. It counts only towards the longer limit.
    mutating func logStood(for nanoseconds: UInt64, until now: UInt64) {
        guard let since = answer?.since else { return }
        answer?.since = max(since, min(now, since + nanoseconds))
    }

    /// Begins to collect the effects of later transactions, while the loop reads the log ahead from the current
    /// transaction.
    mutating func beginUnwinding() {
        answer?.ahead = []
        answer?.lacksOldRow = false
    }

    /// Records the effect of a later transaction, if the answer contains it. A `change` of nil means that the
    /// transaction does not show the old row.
    mutating func unwind(_ change: (key: [UInt8]?, change: Int)?, xid: UInt32) {
        assert(change.map { abs($0.change) == 1 } ?? true, "a row comes or goes")
        guard let answer, answer.rows.snapshot.contains(xid) else { return }
        guard let change else {
            self.answer?.lacksOldRow = true
            return
        }
        self.answer?.ahead.append((change.key, -change.change))
    }

    /// Removes and returns PostgreSQL's answer, with the effects to remove from it; `ahead` is nil if these are not
    /// known.
    mutating func takeAnswer() -> (rows: FilledMembership, ahead: [(key: [UInt8]?, change: Int)]?)? {
        defer { answer = nil }
        return answer.map { ($0.rows, $0.lacksOldRow ? nil : $0.ahead) }
    }
}
