/// Fault of the hub that the verifier found, usually in the changes that a client received.
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
    /// Monotonic time at which the verifier noticed the fault, in nanoseconds.
    var at: UInt64
    /// Number of the transaction whose change is concerned; nil if there is none.
    var sequence: Int64?
}

/// Account of one client of the verifier: compares the changes that the client had to receive with those that it
/// received. It evaluates the client's notes in the order in which they were made, and returns findings. It knows
/// nothing of the hub except its promises to this kind of client.
struct ClientLedger: Sendable {
    enum Kind: String, CaseIterable, Sendable {
        /// Client that joins without a position each time. The hub does not promise it the changes between two joins.
        case plain
        /// Client that states its position when it joins. It has to receive every change exactly once.
        case explicit
        /// Client that states no position; the hub recognizes it. It has to receive every change. The hub may send
        /// changes again that the client had not acknowledged.
        case catchUp = "catch-up"
        /// Unmodified client for Python, with the same rules as `catchUp`.
        case real = "real"

        /// True if the client also has to receive the changes that were committed between its connections.
        var goesOn: Bool { self != .plain }
        /// True if the hub may send changes again that the client received shortly before its socket was cut.
        var mayRepeat: Bool { self != .explicit }
    }

    enum Beginning: Sendable, Equatable {
        case joined
        /// Reply to a join that states a position: true if the hub continues from there.
        case recovered(Bool)
    }

    enum Note: Sendable, Equatable {
        /// Reply to a join: every change committed from now on has to arrive.
        case began(Beginning)
        /// Change of a row that the client received.
        case heard(ChangeMark)
        /// Received record that differs from the row that was written.
        case garbled(String)
        /// Message of the hub that changes may be missing.
        case told(String)
        /// The client stops reading for a while, so it acknowledges nothing.
        case stands
        /// The client's channel has ended, and the client will join again. A client for Python may receive changes
        /// before the reply to that join: an earlier join on the same socket, which it had given up, was answered late.
        case interrupted
    }

    /// Time of a fault that the verifier caused, and the deviation of the hub that the fault excuses.
    struct Cause: Sendable, Equatable {
        enum Effect: Sendable {
            /// Loss of changes: the hub may tell clients of a loss.
            case loss
            /// Missing acknowledgements: pings and pongs were delayed, because they use the same connection as changes,
            /// or the hub could not write the clients' positions to its disk. The hub may then send changes again.
            case silence
        }

        var begin: UInt64
        var end: UInt64
        var effect = Effect.loss
    }

    /// Maximum age of a change that the hub may send again after a cut, in nanoseconds. The age counts back from the
    /// last change that the session received. The hub sends a ping within a second and stores the acknowledged position
    /// within another; the rest allows for a busy machine.
    static let repeatable: UInt64 = 5_000_000_000
    /// Like `repeatable`, for clients for Python. All clients in a process of Python share one thread, which a busy
    /// machine may run late. Then seconds pass between reading a change and answering a ping. The other clients show
    /// how late the hub is.
    static let repeatableByPython: UInt64 = 2 * repeatable
    /// Nanoseconds after a loss within which the hub may tell a client of it. A client that was disconnected learns of
    /// the loss when it returns. The hub may also tell a client twice: a killed hub does not know whether another
    /// client of the same login had a cut socket. It expects that client for the grace period of two minutes, and again
    /// after a restart.
    static let lossReportWindow: UInt64 = 270_000_000_000
    /// Nanoseconds within which the hub has to tell a client of a missing change, counted from the reception of a later
    /// change. The hub tells a channel of losses at most once a second, so newer changes may arrive first. Causes with
    /// the effect `silence` stop this clock. A new session restarts it, because the hub tells the client in that
    /// session.
    static let lossReportDelay: UInt64 = 3_000_000_000
    /// Nanoseconds after which a pause (`stands`) no longer counts. A client that receives a change later than this has
    /// also read the changes before it.
    static let pauseLimit: UInt64 = 20_000_000_000
    private static let rememberedTimes = 4096

    let kind: Kind
    /// Index in the client's `ExpectedChanges` of the first change that is neither received nor recorded as missing.
    private(set) var next = 0
    private(set) var received = 0
    /// Number of changes that the client received again.
    private(set) var repeated = 0
    /// Number of missing changes of which the hub told the client.
    private(set) var told = 0
    /// Longest time between the reception of a change and the cut after which the hub sent it again, in nanoseconds.
    private(set) var oldestRepeat: UInt64 = 0
    private(set) var hasBegun = false
    /// Number of the transaction up to which changes are optional. A later change that does not arrive is missing,
    /// unless the hub tells the client of a loss.
    private var optionalThrough: Int64 = 0
    /// Number of the last transaction that the hub's messages about losses cover.
    private var reportedThrough: Int64 = 0
    /// True after the hub told a client for Python of a loss. Such a client joins again on the same socket, and the
    /// loss extends to that join.
    private var joinsAgain = false
    /// Index of the last expected change that this session has received; -1 if there is none.
    private var sessionPlace = -1
    /// Index of the first expected change that the hub may send again in this session.
    private var repeatsFrom = Int.max
    private var lastReceivedAt: UInt64 = 0
    /// Monotonic time of the last reception in the previous session, in nanoseconds: about the time when that session
    /// was cut.
    private var edge: UInt64 = 0
    /// Time at which the last pause (`stands`) began; nil if this session has not paused.
    private var pausedAt: UInt64?
    /// Changes that the client received last, the newest at the end: the index of each in `ExpectedChanges` and the
    /// monotonic time of its reception.
    private var times: [(place: Int, at: UInt64)] = []
    /// Indexes of the expected changes that were recorded as missing.
    private var reported: Set<Int> = []
    /// Missing changes, each with its index in `ExpectedChanges`, of which the hub may still tell the client in time.
    private var untold: [(place: Int, finding: Finding)] = []
    /// Monotonic time of the last reply to a join, in nanoseconds.
    private var begun: UInt64 = 0

    init(_ kind: Kind) { self.kind = kind }

    /// Evaluates a note of the client and returns the findings that it shows.
    /// - Parameter committed: upper bound of the numbers of transactions that were committed before the note was made.
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
            pausedAt = at
            return overdue
        case .interrupted:
            endSession(causes)
            return overdue
        }
    }

    /// Removes and returns the missing changes for which the hub's time to tell the client is over (`lossReportDelay`).
    private mutating func takeUntold(_ at: UInt64, _ causes: [Cause]) -> [Finding] {
        let overdue = untold.prefix {
            Self.audible(from: max($0.finding.at, begun), to: at, causes) > Self.lossReportDelay
        }
        untold.removeFirst(overdue.count)
        return overdue.map(\.finding)
    }

    /// Removes and returns the missing changes of which the hub never told the client, at the end of the run.
    mutating func takeUntold() -> [Finding] {
        defer { untold = [] }
        return untold.map(\.finding)
    }

    /// Returns the nanoseconds between two times, without the periods of causes with the effect `silence`.
    static func audible(from begin: UInt64, to end: UInt64, _ causes: [Cause]) -> UInt64 {
        var (reached, audible): (UInt64, UInt64) = (begin, 0)
        for silence in causes.filter({ $0.effect == .silence }).sorted(by: { $0.begin < $1.begin }) {
            guard silence.begin < end else { break }
            if silence.begin > reached { audible += silence.begin - reached }
            reached = max(reached, silence.end)
        }
        return end > reached ? audible + (end - reached) : audible
    }

    /// Records that the hub has told the client of losses up to a transaction, and withdraws findings that this covers.
    private mutating func isTold(upTo sequence: Int64) {
        reportedThrough = max(reportedThrough, sequence)
        for (place, finding) in untold where finding.sequence.map({ $0 <= reportedThrough }) ?? false {
            reported.remove(place)
            told += 1
        }
        untold.removeAll { $0.finding.sequence.map { $0 <= reportedThrough } ?? false }
    }

    private mutating func begin(
        _ beginning: Beginning, _ at: UInt64, _ committed: Int64, _ causes: [Cause]
    ) -> [Finding] {
        let isFirst = !hasBegun
        hasBegun = true
        endSession(causes)
        if beginning == .recovered(false) {
            // The client's position belongs to another history. The reply says where the client continues.
            return hearOfLoss("recovered: false", at, committed, causes)
        }
        if joinsAgain { isTold(upTo: committed) }
        joinsAgain = false
        if isFirst || !kind.goesOn { optionalThrough = committed }
        return []
    }

    /// Ends the session, and computes which changes the next session may receive again.
    private mutating func endSession(_ causes: [Cause]) {
        // If the session was cut before the hub had sent all repetitions, the rest of them may still arrive, at any
        // time.
        let rest = sessionPlace < 0 ? repeatsFrom : sessionPlace + 1
        sessionPlace = -1
        edge = lastReceivedAt
        if let pausedAt, lastReceivedAt < pausedAt + Self.pauseLimit { edge = min(edge, pausedAt) }
        pausedAt = nil
        let oldest = oldestRepeatable(causes)
        repeatsFrom = kind.mayRepeat ? min(rest, times.first { $0.at >= oldest }?.place ?? next) : next
    }

    /// Returns the time of the earliest reception whose change the hub may send again. Causes with the effect `silence`
    /// extend it into the past, because the client could not acknowledge while they lasted.
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
        // A message about a loss without a cause is a finding itself. Still, changes that it covers do not count as
        // missing.
        isTold(upTo: committed)
        joinsAgain = kind == .real
        let isFounded = causes.contains { $0.effect == .loss && $0.begin < at && at < $0.end + Self.lossReportWindow }
        return isFounded ? [] : [Finding(kind: .unfoundedTelling, text: text, at: at)]
    }

    private mutating func hear(_ mark: ChangeMark, _ at: UInt64, _ journal: borrowing Journal, _ seat: Int) -> [Finding]
    {
        received += 1
        defer { lastReceivedAt = at }
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

    private static func words(_ expected: ExpectedChanges.Expected, _ journal: borrowing Journal) -> String {
        "\(expected.mark) of \(journal.table(of: expected.mark) ?? "no table") in transaction \(expected.sequence)"
    }

    private mutating func accept(_ place: Int, _ at: UInt64, _ journal: borrowing Journal, _ seat: Int) {
        for index in next..<place {
            let expected = journal.rolls[seat].expected[index]
            if expected.sequence <= optionalThrough { continue }
            if expected.sequence <= reportedThrough {
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
        // Only the first repetition of a session counts. The changes after it are sent again, however old they are.
        if let known = times.firstIndex(where: { $0.place == place }) {
            let age = edge > times[known].at ? edge - times[known].at : 0
            if sessionPlace < 0 { oldestRepeat = max(oldestRepeat, age) }
            times[known].at = at
        }
        return []
    }

    /// True if the change at this index in `ExpectedChanges` has been received or recorded as missing.
    func has(_ place: Int) -> Bool { next > place }
}
