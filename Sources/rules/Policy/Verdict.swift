/// Answer of a predicate for a row: SQL's three values, two for what only PostgreSQL can tell, and one for an error.
public enum Verdict: UInt8, Sendable {
    case no
    /// The answer is NULL: no match.
    case unknown
    case yes
    /// No, NULL or an error: PostgreSQL alone can tell which. The hub need not ask, because none of the three matches.
    case notYes
    /// The process cannot decide and never guesses: PostgreSQL is asked.
    case ask
    /// PostgreSQL would fail: no match. Only policies have this verdict.
    case failed

    /// Creates the verdict of a whole expression. Only yes is a match, so a result that cannot be yes need not be
    /// asked.
    init(_ truth: Truth) {
        switch truth {
        case .no: self = .no
        case .unknown: self = .unknown
        case .notYes: self = .notYes
        case .yes: self = .yes
        case .ask, .notNo: self = .ask
        case .failed: self = .failed
        }
    }
}

/// Possible results of a part of an expression: one of SQL's three values, an error, or a set of results that
/// PostgreSQL may give. The raw value is the set, with a bit for each result.
///
/// NULL AND an undecided part need not be asked: the result is never yes. The negation of that result may be yes.
enum Truth: UInt8, Sendable {
    case no = 1
    /// The result is NULL.
    case unknown = 2
    case yes = 4
    /// PostgreSQL would fail.
    case failed = 8
    /// Result that PostgreSQL alone can tell, and that is not yes.
    case notYes = 11
    /// Result that PostgreSQL alone can tell, and that is not no.
    case notNo = 14
    /// Result that PostgreSQL alone can tell, and that may be any.
    case ask = 15
}

extension Truth {
    init(_ answer: Bool?) {
        self = answer.map { $0 ? .yes : .no } ?? .ask
    }

    /// Creates the smallest value that includes all results of a set.
    private init(holding set: UInt8) {
        precondition(set != 0 && set & ~Truth.ask.rawValue == 0, "an expression comes to something")
        self =
            Truth(rawValue: set)
            ?? (set & Truth.yes.rawValue == 0 ? .notYes : set & Truth.no.rawValue == 0 ? .notNo : .ask)
        assert(rawValue & set == set, "what it may come to is forgotten")
    }

    /// True if only PostgreSQL can tell the result.
    var isAsked: Bool {
        switch self {
        case .notYes, .notNo, .ask: true
        case .no, .unknown, .yes, .failed: false
        }
    }

    func may(be value: Truth) -> Bool { rawValue & value.rawValue != 0 }

    /// Returns a value that includes the possible results of both.
    func or(perhaps other: Truth?) -> Truth {
        guard let other else { return self }
        return Truth(holding: rawValue | other.rawValue)
    }

    /// Returns the possible results except `value`; nil if no other is possible.
    func without(_ value: Truth) -> Truth? {
        assert(value.rawValue.nonzeroBitCount == 1, "one thing that it may come to")
        let rest = rawValue & ~value.rawValue
        return rest == 0 ? nil : Truth(holding: rest)
    }

    /// Result of SQL's NOT.
    var negated: Truth {
        switch self {
        case .no: .yes
        case .yes: .no
        case .notYes: .notNo
        case .notNo: .notYes
        case .unknown, .ask, .failed: self
        }
    }

    /// Returns the result of SQL's AND, the lowest of no, an error, NULL and yes, in that order. No AND an error is no,
    /// as in PostgreSQL when it evaluates the part that is no first.
    func and(_ other: Truth) -> Truth {
        let (a, b) = (rawValue, other.rawValue)
        let (no, failed, unknown) = (Truth.no.rawValue, Truth.failed.rawValue, Truth.unknown.rawValue)
        let yes = Truth.yes.rawValue
        var set = (a | b) & no | a & b
        if (a | b) & failed != 0, a & ~no != 0, b & ~no != 0 { set |= failed }
        if (a | b) & unknown != 0, a & (unknown | yes) != 0, b & (unknown | yes) != 0 { set |= unknown }
        assert(set & yes == a & b & yes, "AND holds where both parts do, and nowhere else")
        return Truth(holding: set)
    }

    /// Returns the result of SQL's OR.
    func or(_ other: Truth) -> Truth { negated.and(other.negated).negated }

    /// Returns AND if `decides` is no, and OR if `decides` is yes: the result that settles the group.
    func joined(_ other: Truth, inGroupThat decides: Truth) -> Truth {
        precondition(decides == .no || decides == .yes, "AND or OR")
        return decides == .no ? and(other) : or(other)
    }

    /// Returns the result of IS TRUE, IS FALSE or IS UNKNOWN, by `value`. The result for an error is an error.
    func isExactly(_ value: Truth) -> Truth {
        precondition(value == .yes || value == .no || value == .unknown, "one of SQL's three values")
        var set = rawValue & Truth.failed.rawValue
        if may(be: value) { set |= Truth.yes.rawValue }
        if rawValue & ~(value.rawValue | Truth.failed.rawValue) != 0 { set |= Truth.no.rawValue }
        return Truth(holding: set)
    }
}
