/// What is wrong with what a client received.
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
    /// When it was noticed, and the transaction that it speaks of.
    var at: UInt64
    var sequence: Int64?
}

/// One client's account: what it had to receive beside what it received. Pure: notes in the order in which they were made,
/// findings out. It knows nothing of the hub but what is promised to this kind of client.
struct ClientLedger: Sendable {
    enum Kind: String, CaseIterable, Sendable {
        /// Joins anew each time, and knows that it misses what was between.
        case plain
        /// Says the position that it has come to, and misses nothing, and gets nothing twice.
        case explicit
        /// Asks for nothing and misses nothing; what it had not acknowledged may come again.
        case catchUp = "catch-up"
        /// The same by the unmodified client for Python.
        case real = "real"

        var goesOn: Bool { self != .plain }
        /// What was received shortly before the cut may come again.
        var mayRepeat: Bool { self != .explicit }
    }

    enum Beginning: Sendable, Equatable {
        case joined
        /// What the hub says to a position.
        case recovered(Bool)
    }

    enum Note: Sendable, Equatable {
        /// The reply to a join: what is committed from now on has to come.
        case began(Beginning)
        case heard(ChangeMark)
        /// A record that is not what was written.
        case garbled(String)
        /// That changes may be missing.
        case told(String)
        /// From now on it does not read for a while, and so acknowledges nothing.
        case stands
    }

    /// A fault, as far as it is an excuse.
    struct Cause: Sendable, Equatable {
        enum Effect: Sendable {
            /// Clients may be told of a loss.
            case loss
            /// Nobody may have acknowledged anything, or what was acknowledged may not have been written down: pings and
            /// pongs go the way that events go, and where clients stand is written to the disk.
            case silence
        }

        var begin: UInt64
        var end: UInt64
        var effect = Effect.loss
    }

    /// What may come again was received so shortly before the last thing that came before the cut: a ping follows within a
    /// second, where it stood is written down within another, and a busy machine may be late.
    static let repeatable: UInt64 = 5_000_000_000
    /// All clients for Python share one thread, which has its time when nobody else of a busy machine wants it: what they have
    /// read and answer may be seconds apart. How late the hub is, the others tell.
    static let repeatableByPython: UInt64 = 2 * repeatable
    /// A client that was away when history broke may be told when it comes back. So may one that has been told already: of a
    /// socket that the hub did not know to be cut when it was killed, it cannot tell whether another client of the same login
    /// had it. It is expected back for the grace of two minutes, which a restart gives it once more.
    static let tellable: UInt64 = 270_000_000_000
    /// It stood still, and then took in what had come meanwhile.
    static let longestStand: UInt64 = 20_000_000_000
    private static let rememberedTimes = 4096

    let kind: Kind
    /// The first that is not accounted for.
    private(set) var next = 0
    private(set) var received = 0
    private(set) var repeated = 0
    /// Missing, and told.
    private(set) var told = 0
    /// How long before the cut the oldest repeated one had been received.
    private(set) var oldestRepeat: UInt64 = 0
    private(set) var hasBegun = false
    /// Missing is what is behind this, unless it was told of.
    private var optionalTo: Int64 = 0
    private var toldTo: Int64 = 0
    /// The client for Python joins again on the same socket when it is told of an error; what it is told of goes as far.
    private var joinsAgain = false
    /// Where this session stands among what had to come; and where a repetition may begin.
    private var sessionPlace = -1
    private var repeatsFrom = Int.max
    private var lastHeard: UInt64 = 0
    /// The same when this session began: about when the one before was cut.
    private var edge: UInt64 = 0
    private var stoodAt: UInt64?
    /// When the last ones came, the newest at the end.
    private var times: [(place: Int, at: UInt64)] = []
    private var reported: Set<Int> = []

    init(_ kind: Kind) { self.kind = kind }

    /// `committed`: no transaction later than this one had been committed at that time.
    mutating func take(
        _ note: Note, at: UInt64, committed: Int64, causes: [Cause], journal: borrowing Journal, seat: Int
    ) -> [Finding] {
        switch note {
        case .began(let beginning): return begin(beginning, at, committed, causes)
        case .heard(let mark): return hear(mark, at, journal, seat)
        case .garbled(let text): return [Finding(kind: .wrongValue, text: text, at: at)]
        case .told(let text): return hearOfLoss(text, at, committed, causes)
        case .stands:
            stoodAt = at
            return []
        }
    }

    private mutating func begin(
        _ beginning: Beginning, _ at: UInt64, _ committed: Int64, _ causes: [Cause]
    ) -> [Finding] {
        let isFirst = !hasBegun
        hasBegun = true
        // What came again and was cut off before it came to its end has the rest of it still to come, however long it takes.
        let rest = sessionPlace < 0 ? repeatsFrom : sessionPlace + 1
        sessionPlace = -1
        edge = lastHeard
        if let stoodAt, lastHeard < stoodAt + Self.longestStand { edge = min(edge, stoodAt) }
        stoodAt = nil
        let oldest = oldestRepeatable(causes)
        repeatsFrom = kind.mayRepeat ? min(rest, times.first { $0.at >= oldest }?.place ?? next) : next
        if beginning == .recovered(false) {
            // It is told where to go on; what it had is of another history.
            return hearOfLoss("recovered: false", at, committed, causes)
        }
        if joinsAgain { toldTo = max(toldTo, committed) }
        joinsAgain = false
        if isFirst || !kind.goesOn { optionalTo = committed }
        return []
    }

    /// Silence does not count as time in which something could have been acknowledged.
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
        // What is told without a reason is wrong by itself, and still told: what is missing then is not missing in silence.
        toldTo = max(toldTo, committed)
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
        guard place < next else { return accept(place, at, journal, seat) }
        return hearAgain(place, at, journal, seat)
    }

    private static func words(_ expected: SeatRoll.Expected, _ journal: borrowing Journal) -> String {
        "\(expected.mark) of \(journal.table(of: expected.mark) ?? "no table") in transaction \(expected.sequence)"
    }

    private mutating func accept(
        _ place: Int, _ at: UInt64, _ journal: borrowing Journal, _ seat: Int
    ) -> [Finding] {
        var findings: [Finding] = []
        for index in next..<place {
            let expected = journal.rolls[seat].expected[index]
            if expected.sequence <= optionalTo { continue }
            if expected.sequence <= toldTo {
                told += 1
                continue
            }
            reported.insert(index)
            findings.append(
                Finding(
                    kind: .missing, text: Self.words(expected, journal), at: at, sequence: expected.sequence))
        }
        next = place + 1
        times.append((place, at))
        if times.count > Self.rememberedTimes { times.removeFirst(Self.rememberedTimes / 2) }
        return findings
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
        // Where a session begins is what counts: what follows it comes again whenever it had come.
        if let known = times.firstIndex(where: { $0.place == place }) {
            let age = edge > times[known].at ? edge - times[known].at : 0
            if sessionPlace < 0 { oldestRepeat = max(oldestRepeat, age) }
            times[known].at = at
        }
        return []
    }

    /// Whether it has everything up to this place.
    func has(_ place: Int) -> Bool { next > place }
}
