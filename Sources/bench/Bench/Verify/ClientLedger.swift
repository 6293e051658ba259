/// Fault in the changes that a client received.
struct Finding: Sendable, Equatable {
    enum Kind: String, CaseIterable, Sendable {
        case missing
        case twice = "duplicated"
        case disorder = "out of order"
        case wronglyVisible = "wrongly visible"
        case wrongValue = "wrong value"
        case unknown = "of no commit"
        case unfoundedTelling = "told without cause"
        case unexplainedClose = "unexplained close"
        case stuck
    }

    var kind: Kind
    var text: String
    /// Time at which the fault was noticed. `sequence` is the transaction concerned.
    var at: UInt64
    var sequence: Int64?
}

/// Account of one client: the changes it had to receive, beside those it received. Pure: takes notes in the order in
/// which they were made, and returns findings. Knows nothing of the hub except the promises to this kind of client.
struct ClientLedger: Sendable {
    enum Kind: String, CaseIterable, Sendable {
        /// Joins anew each time, and knows that changes in between are missed.
        case plain
        /// States its position when it joins, misses nothing, and gets nothing twice.
        case explicit
        /// States no position and misses nothing. Changes that it had not acknowledged may come again.
        case catchUp = "catch-up"
        /// Like `catchUp`, with the unmodified client for Python.
        case real = "real"

        var goesOn: Bool { self != .plain }
        /// True if changes that were received shortly before the cut may come again.
        var mayRepeat: Bool { self != .explicit }
    }

    enum Beginning: Sendable, Equatable {
        case joined
        /// Hub's answer to a position.
        case recovered(Bool)
    }

    enum Note: Sendable, Equatable {
        /// Reply to a join: changes that are committed from now on have to come.
        case began(Beginning)
        case heard(ChangeMark)
        /// Record that differs from what was written.
        case garbled(String)
        /// Message that changes may be missing.
        case told(String)
        /// Pause: from now on the client does not read for a while, and so acknowledges nothing.
        case stands
        /// The client's channel is interrupted, and the client will join again. A client for Python takes changes before
        /// the reply to that join, if it has given up an earlier join on the same socket whose reply came late.
        case interrupted
    }

    /// Fault, as far as it is an excuse.
    struct Cause: Sendable, Equatable {
        enum Effect: Sendable {
            /// The hub may tell clients of a loss.
            case loss
            /// Clients may have acknowledged nothing, or acknowledgements may not be stored. Pings and pongs go the
            /// same way as events, and the clients' positions are written to the disk.
            case silence
        }

        var begin: UInt64
        var end: UInt64
        var effect = Effect.loss
    }

    /// Time before a session's last change in which received changes may come again. A ping follows within a second,
    /// the hub stores the acknowledged position within another, and a busy machine may be late.
    static let repeatable: UInt64 = 5_000_000_000
    /// Same time for clients for Python. All these clients share one thread, which a busy machine runs last, so reading
    /// and answering may be seconds apart. The other clients show how late the hub is.
    static let repeatableByPython: UInt64 = 2 * repeatable
    /// Time after a loss within which the hub may tell a client of the loss. A client that was away is told when it
    /// returns. A client may also be told twice: a killed hub does not know whether another client of the same login
    /// had a cut socket. The hub expects such a client for the grace period of two minutes, and after a restart once
    /// more.
    static let tellable: UInt64 = 270_000_000_000
    /// Time after a later change within which the hub may tell a client of a missing one. The hub tells a channel of
    /// losses at most once a second, so newer changes may come first. Silence does not count, and the time begins anew
    /// when the client returns: the client is told then.
    static let tellingDelay: UInt64 = 3_000_000_000
    /// Maximum time for which a pause counts: then the client reads the changes that came meanwhile.
    static let longestStand: UInt64 = 20_000_000_000
    private static let rememberedTimes = 4096

    let kind: Kind
    /// Index of the first expected change that is not accounted for.
    private(set) var next = 0
    private(set) var received = 0
    private(set) var repeated = 0
    /// Number of missing changes of which the client was told.
    private(set) var told = 0
    /// Longest time between the first reception of a repeated change and the cut.
    private(set) var oldestRepeat: UInt64 = 0
    private(set) var hasBegun = false
    /// Transaction up to which changes are optional. Later changes are missing if they do not come, unless the hub told
    /// the client.
    private var optionalTo: Int64 = 0
    private var toldTo: Int64 = 0
    /// True after a client for Python was told of a loss. Such a client joins again on the same socket, and the loss
    /// extends to that join.
    private var joinsAgain = false
    /// Index that this session has reached in the expected changes. `repeatsFrom` is the index where repetitions may
    /// begin.
    private var sessionPlace = -1
    private var repeatsFrom = Int.max
    private var lastHeard: UInt64 = 0
    /// Value of `lastHeard` when this session began: about the time when the previous session was cut.
    private var edge: UInt64 = 0
    private var stoodAt: UInt64?
    /// Times at which the last changes came, the newest at the end.
    private var times: [(place: Int, at: UInt64)] = []
    private var reported: Set<Int> = []
    /// Missing changes of which the client may still be told.
    private var untold: [(place: Int, finding: Finding)] = []
    /// Time at which the session began.
    private var begun: UInt64 = 0

    init(_ kind: Kind) { self.kind = kind }

    /// Takes a note and returns findings. At that time, no transaction later than `committed` had been committed.
    mutating func take(
        _ note: Note, at: UInt64, committed: Int64, causes: [Cause], journal: borrowing Journal, seat: Int
    ) -> [Finding] {
        if case .began = note { begun = at }
        let overdue = takeUntold(at, causes)
        switch note {
        case .began(let beginning): return overdue + begin(beginning, at, committed, causes)
        case .heard(let mark): return overdue + hear(mark, at, journal, seat)
        case .garbled(let text): return overdue + [Finding(kind: .wrongValue, text: text, at: at)]
        case .told(let text): return overdue + hearOfLoss(text, at, committed, causes)
        case .stands:
            stoodAt = at
            return overdue
        case .interrupted:
            endSession(causes)
            return overdue
        }
    }

    /// Returns the missing changes of which the client was not told in time.
    private mutating func takeUntold(_ at: UInt64, _ causes: [Cause]) -> [Finding] {
        let overdue = untold.prefix {
            Self.audible(from: max($0.finding.at, begun), to: at, causes) > Self.tellingDelay
        }
        untold.removeFirst(overdue.count)
        return overdue.map(\.finding)
    }

    /// Returns the missing changes of which the client was not told, at the end of the run.
    mutating func takeUntold() -> [Finding] {
        defer { untold = [] }
        return untold.map(\.finding)
    }

    /// Returns the time between two moments without silence.
    static func audible(from begin: UInt64, to end: UInt64, _ causes: [Cause]) -> UInt64 {
        var (reached, audible): (UInt64, UInt64) = (begin, 0)
        for silence in causes.filter({ $0.effect == .silence }).sorted(by: { $0.begin < $1.begin }) {
            guard silence.begin < end else { break }
            if silence.begin > reached { audible += silence.begin - reached }
            reached = max(reached, silence.end)
        }
        return end > reached ? audible + (end - reached) : audible
    }

    /// Notes that the client knows of losses up to a transaction.
    private mutating func isTold(upTo sequence: Int64) {
        toldTo = max(toldTo, sequence)
        for (place, finding) in untold where finding.sequence.map({ $0 <= toldTo }) ?? false {
            reported.remove(place)
            told += 1
        }
        untold.removeAll { $0.finding.sequence.map { $0 <= toldTo } ?? false }
    }

    private mutating func begin(
        _ beginning: Beginning, _ at: UInt64, _ committed: Int64, _ causes: [Cause]
    ) -> [Finding] {
        let isFirst = !hasBegun
        hasBegun = true
        endSession(causes)
        if beginning == .recovered(false) {
            // The hub tells the client where to continue. The client's changes belong to another history.
            return hearOfLoss("recovered: false", at, committed, causes)
        }
        if joinsAgain { isTold(upTo: committed) }
        joinsAgain = false
        if isFirst || !kind.goesOn { optionalTo = committed }
        return []
    }

    /// Ends the session. What was received shortly before its end may come again.
    private mutating func endSession(_ causes: [Cause]) {
        // If a repetition was cut before its end, its rest may still come, however long that takes.
        let rest = sessionPlace < 0 ? repeatsFrom : sessionPlace + 1
        sessionPlace = -1
        edge = lastHeard
        if let stoodAt, lastHeard < stoodAt + Self.longestStand { edge = min(edge, stoodAt) }
        stoodAt = nil
        let oldest = oldestRepeatable(causes)
        repeatsFrom = kind.mayRepeat ? min(rest, times.first { $0.at >= oldest }?.place ?? next) : next
    }

    /// Returns the time since which received changes may come again. Silence does not count as time for acknowledging.
    private func oldestRepeatable(_ causes: [Cause]) -> UInt64 {
        let repeatable = kind == .real ? Self.repeatableByPython : Self.repeatable
        func before(_ moment: UInt64) -> UInt64 { moment - min(moment, repeatable) }
        var oldest = before(edge)
        for cause in causes.reversed() where cause.effect == .silence {
            if cause.begin <= edge, cause.end >= oldest { oldest = min(oldest, before(cause.begin)) }
        }
        return oldest
    }

    private mutating func hearOfLoss(
        _ text: String, _ at: UInt64, _ committed: Int64, _ causes: [Cause]
    ) -> [Finding] {
        // A loss told without a reason is itself a fault. Changes that are missing then are not missing in silence.
        isTold(upTo: committed)
        joinsAgain = kind == .real
        let isFounded = causes.contains { $0.effect == .loss && $0.begin < at && at < $0.end + Self.tellable }
        return isFounded ? [] : [Finding(kind: .unfoundedTelling, text: text, at: at)]
    }

    private mutating func hear(_ mark: ChangeMark, _ at: UInt64, _ journal: borrowing Journal, _ seat: Int) -> [Finding]
    {
        received += 1
        defer { lastHeard = at }
        guard let place = journal.rolls[seat].place(of: mark) else {
            let table = journal.table(of: mark)
            return [
                Finding(
                    kind: table == nil ? .unknown : .wronglyVisible, text: "\(mark) of \(table ?? "no table")", at: at)
            ]
        }
        defer { sessionPlace = max(sessionPlace, place) }
        guard place < next else {
            accept(place, at, journal, seat)
            return []
        }
        return hearAgain(place, at, journal, seat)
    }

    private static func words(_ expected: SeatRoll.Expected, _ journal: borrowing Journal) -> String {
        "\(expected.mark) of \(journal.table(of: expected.mark) ?? "no table") in transaction \(expected.sequence)"
    }

    private mutating func accept(_ place: Int, _ at: UInt64, _ journal: borrowing Journal, _ seat: Int) {
        for index in next..<place {
            let expected = journal.rolls[seat].expected[index]
            if expected.sequence <= optionalTo { continue }
            if expected.sequence <= toldTo {
                told += 1
                continue
            }
            reported.insert(index)
            let text = Self.words(expected, journal)
            untold.append((index, Finding(kind: .missing, text: text, at: at, sequence: expected.sequence)))
        }
        next = place + 1
        times.append((place, at))
        if times.count > Self.rememberedTimes { times.removeFirst(Self.rememberedTimes / 2) }
    }

    private mutating func hearAgain(
        _ place: Int, _ at: UInt64, _ journal: borrowing Journal, _ seat: Int
    ) -> [Finding] {
        let expected = journal.rolls[seat].expected[place]
        let text = Self.words(expected, journal)
        if reported.remove(place) != nil {
            return [Finding(kind: .disorder, text: text, at: at, sequence: expected.sequence)]
        }
        guard place > sessionPlace else {
            let kind: Finding.Kind = place == sessionPlace ? .twice : .disorder
            return [Finding(kind: kind, text: text, at: at, sequence: expected.sequence)]
        }
        guard place >= repeatsFrom else {
            let first = times.first { $0.place == place }
            let age = first.map { edge > $0.at ? (edge - $0.at) / 1_000_000 : 0 }
            let words = age.map { "\(text), which it had \($0) ms before the cut" } ?? text
            return [Finding(kind: .twice, text: words, at: at, sequence: expected.sequence)]
        }
        repeated += 1
        // Only the change with which a session begins counts. The changes after it come again, however old they are.
        if let known = times.firstIndex(where: { $0.place == place }) {
            let age = edge > times[known].at ? edge - times[known].at : 0
            if sessionPlace < 0 { oldestRepeat = max(oldestRepeat, age) }
            times[known].at = at
        }
        return []
    }

    /// True if the client has everything up to this place.
    func has(_ place: Int) -> Bool { next > place }
}
