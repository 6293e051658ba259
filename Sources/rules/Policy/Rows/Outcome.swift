/// Result of evaluating a term.
enum Outcome: Sendable, Hashable {
    case value([UInt8])
    case null
    /// PostgreSQL would raise an error.
    case failed
    /// Value that only PostgreSQL knows.
    case cannot

    init(_ answer: Bool) { self = .value([UInt8(ascii: answer ? "t" : "f")]) }

    init(_ answer: Bool?) { self = answer.map { Outcome($0) } ?? .cannot }

    init(_ text: String) { self = .value(Array(text.utf8)) }

    init(_ truth: Truth) {
        switch truth {
        case .yes: self.init(true)
        case .no: self.init(false)
        case .unknown: self = .null
        case .failed: self = .failed
        case .ask, .notYes, .notNo: self = .cannot
        }
    }

    /// Truth value of a boolean's text.
    var truth: Truth {
        switch self {
        case .value([UInt8(ascii: "t")]): .yes
        case .value([UInt8(ascii: "f")]): .no
        case .value, .cannot: .ask
        case .null: .unknown
        case .failed: .failed
        }
    }
}
