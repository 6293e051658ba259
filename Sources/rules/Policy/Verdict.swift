/// Result of a predicate for a row: SQL's three values, two for what only PostgreSQL can decide, and one for an error.
public enum Verdict: UInt8, Sendable {
    case no
    /// The result is NULL, so the row does not match.
    case unknown
    case yes
    /// The result is false, NULL or an error; only PostgreSQL knows which. The hub need not ask, because none is a
    /// match.
    case notYes
    /// The hub cannot decide the row, so it asks PostgreSQL.
    case ask
    /// PostgreSQL would raise an error, so the row does not match. Only policies have this verdict.
    case failed

    /// Creates the verdict of a whole expression. Only yes is a match, so the hub need not ask PostgreSQL about a
    /// result that cannot be yes.
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

/// Possible results of a part of an expression. It is one of SQL's three values, an error, or a set of these if only
/// PostgreSQL knows. The raw value is the set, with one bit for each result.
///
/// For example, NULL AND an undecided part is `notYes`: the hub need not ask PostgreSQL about it, because it cannot be
/// yes. Its negation may be yes.
enum Truth: UInt8, Sendable {
    case no = 1
    /// The result is NULL.
    case unknown = 2
    case yes = 4
    /// PostgreSQL would raise an error.
    case failed = 8
    /// Result that only PostgreSQL knows, and that cannot be yes.
    case notYes = 11
    /// Result that only PostgreSQL knows, and that cannot be no.
    case notNo = 14
    /// Result that only PostgreSQL knows, and that can be anything.
    case ask = 15
}

extension Truth {
    init(_ answer: Bool?) {
        self = answer.map { $0 ? .yes : .no } ?? .ask
    }

    /// Creates the smallest value that includes all results in the set.
    private init(holding set: UInt8) {
        precondition(set != 0 && set & ~Truth.ask.rawValue == 0, "an expression comes to something")
        self =
            Truth(rawValue: set)
            ?? (set & Truth.yes.rawValue == 0 ? .notYes : set & Truth.no.rawValue == 0 ? .notNo : .ask)
        assert(rawValue & set == set, "what it may come to is forgotten")
    }

    /// True if only PostgreSQL knows the result.
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

    /// Returns the value without the result `value`; nil if no other result is possible.
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

    /// Returns the result of SQL's AND: the lowest of no, an error, NULL and yes, in this order. As in PostgreSQL, no
    /// AND an error is no if the part that is no is evaluated first.
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

    /// Returns the result of AND if `decides` is no, and of OR if `decides` is yes. `decides` is the value that settles
    /// the group.
    func joined(_ other: Truth, inGroupThat decides: Truth) -> Truth {
        precondition(decides == .no || decides == .yes, "AND or OR")
        return decides == .no ? and(other) : or(other)
    }

    /// Returns the result of IS TRUE, IS FALSE or IS UNKNOWN, depending on `value`. An error stays an error.
    func isExactly(_ value: Truth) -> Truth {
        precondition(value == .yes || value == .no || value == .unknown, "one of SQL's three values")
        var set = rawValue & Truth.failed.rawValue
        if may(be: value) { set |= Truth.yes.rawValue }
        if rawValue & ~(value.rawValue | Truth.failed.rawValue) != 0 { set |= Truth.no.rawValue }
        return Truth(holding: set)
    }
}
