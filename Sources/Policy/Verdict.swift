/// What a predicate says of a row: SQL's three values, one for what only PostgreSQL can tell, and one for an error.
public enum Verdict: UInt8, Sendable {
    case no
    /// NULL: no match, and none when negated.
    case unknown
    case yes
    /// It cannot be decided in process and is asked of PostgreSQL; never a guess.
    case ask
    /// PostgreSQL would fail: no match, and none when negated. Only policies can.
    case failed
}

extension Verdict {
    init(_ answer: Bool?) {
        self = answer.map { $0 ? .yes : .no } ?? .ask
    }

    /// SQL's NOT.
    var negated: Verdict {
        switch self {
        case .no: .yes
        case .yes: .no
        case .unknown, .ask, .failed: self
        }
    }

    /// What wins in a group where nothing decides.
    private var weight: Int {
        switch self {
        case .no, .yes: 0
        case .unknown: 1
        case .failed: 2
        case .ask: 3
        }
    }

    /// Both in a group that neither decides.
    func joined(_ other: Verdict) -> Verdict { weight >= other.weight ? self : other }
}
