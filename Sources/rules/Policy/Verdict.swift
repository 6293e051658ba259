/// The answer of a predicate for a row: SQL's three values, two for what only PostgreSQL can tell, and one for an error.
public enum Verdict: UInt8, Sendable {
    case no
    /// NULL: no match.
    case unknown
    case yes
    /// Only PostgreSQL can tell whether it is no or NULL, and need not be asked: it is no match.
    case notYes
    /// It cannot be decided in process and is asked of PostgreSQL; never a guess.
    case ask
    /// PostgreSQL would fail: no match. Only policies can.
    case failed

    /// Of a whole expression: only what holds counts, so what can not hold need not be asked.
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

/// The possible results of a part of an expression: SQL's three values and an error where that is known, otherwise what
/// PostgreSQL may say of it. The raw value is the set of these, a bit for each.
///
/// NULL AND something that has to be asked is not something that has to be asked: it never holds. Negated it may.
enum Truth: UInt8, Sendable {
    case no = 1
    /// NULL.
    case unknown = 2
    case yes = 4
    /// PostgreSQL fails.
    case failed = 8
    /// Only PostgreSQL can tell, but it will not say yes …
    case notYes = 11
    /// … will not say no …
    case notNo = 14
    /// … may say anything.
    case ask = 15
}

extension Truth {
    init(_ answer: Bool?) {
        self = answer.map { $0 ? .yes : .no } ?? .ask
    }

    /// The smallest that has all of a set.
    private init(holding set: UInt8) {
        precondition(set != 0 && set & ~Truth.ask.rawValue == 0, "an expression comes to something")
        self =
            Truth(rawValue: set)
            ?? (set & Truth.yes.rawValue == 0 ? .notYes : set & Truth.no.rawValue == 0 ? .notNo : .ask)
        assert(rawValue & set == set, "what it may come to is forgotten")
    }

    /// Only PostgreSQL can tell.
    var isAsked: Bool {
        switch self {
        case .notYes, .notNo, .ask: true
        case .no, .unknown, .yes, .failed: false
        }
    }

    func may(be value: Truth) -> Bool { rawValue & value.rawValue != 0 }

    /// The one or the other.
    func or(perhaps other: Truth?) -> Truth {
        guard let other else { return self }
        return Truth(holding: rawValue | other.rawValue)
    }

    /// The other results; nil where `value` is the only one.
    func without(_ value: Truth) -> Truth? {
        assert(value.rawValue.nonzeroBitCount == 1, "one thing that it may come to")
        let rest = rawValue & ~value.rawValue
        return rest == 0 ? nil : Truth(holding: rest)
    }

    /// SQL's NOT.
    var negated: Truth {
        switch self {
        case .no: .yes
        case .yes: .no
        case .notYes: .notNo
        case .notNo: .notYes
        case .unknown, .ask, .failed: self
        }
    }

    /// SQL's AND, of which the least counts: no, an error, NULL, yes, in that order. That an error is no error where the
    /// other part says no is what PostgreSQL does when it comes to that part first.
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

    /// SQL's OR.
    func or(_ other: Truth) -> Truth { negated.and(other.negated).negated }

    /// In a group that `decides`, which is no for AND and yes for OR.
    func joined(_ other: Truth, inGroupThat decides: Truth) -> Truth {
        precondition(decides == .no || decides == .yes, "AND or OR")
        return decides == .no ? and(other) : or(other)
    }

    /// IS TRUE, IS FALSE and IS UNKNOWN: whether it is just this value. Of an error that is an error.
    func isExactly(_ value: Truth) -> Truth {
        precondition(value == .yes || value == .no || value == .unknown, "one of SQL's three values")
        var set = rawValue & Truth.failed.rawValue
        if may(be: value) { set |= Truth.yes.rawValue }
        if rawValue & ~(value.rawValue | Truth.failed.rawValue) != 0 { set |= Truth.no.rawValue }
        return Truth(holding: set)
    }
}
