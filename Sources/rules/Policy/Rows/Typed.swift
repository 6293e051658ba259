/// A part of an expression with what is known of it.
struct Typed {
    var type: TypeFacts
    var collation: DerivedCollation
    /// The term that the process can evaluate; nil only where the value depends on claims alone and PostgreSQL can be
    /// asked.
    var term: Term?
    /// Depends on the row or on something that changes as time goes by: never evaluated once for a holder.
    var readsRow = false
    /// A part of it is `.undecided` or a membership: fit for AND, OR, NOT and their like, not for an operator's side.
    var isDecision = false
    /// PostgreSQL may be asked for its value once for each holder.
    var canBeAsked = true
    /// Calls nothing that did not come with PostgreSQL.
    var isBuiltIn = true
    /// Any number of values, `unnest(…)`.
    var isSet = false
    /// The expression as SQL, functions written in SQL replaced by their bodies.
    var syntax: Syntax

    static let undecided = Typed(
        type: .boolean, collation: .none, term: .undecided, readsRow: true, isDecision: true, canBeAsked: false,
        isBuiltIn: false, syntax: .null)

    static func constant(_ text: String?, _ type: TypeFacts, _ syntax: Syntax) -> Typed {
        Typed(
            type: type, collation: .ofResult(type, .none), term: .constant(text.map { Array($0.utf8) }, type),
            syntax: syntax)
    }

    var asked: AskedTerm { AskedTerm(sql: Renderer.text(syntax, .qualified), type: type, isBuiltIn: isBuiltIn) }

    /// The value as a part of something that reads the row.
    func sealed() throws(Undecided) -> Term {
        guard !isSet else { throw Undecided() }
        precondition(!readsRow || !canBeAsked, "what reads the row has no one value for its holder")
        if let term, readsRow || term.isPlain { return term }
        if canBeAsked { return .ofClaims(term, asked) }
        guard let term else { throw Undecided() }
        return term
    }
}

/// Only PostgreSQL can tell, or it is not understood.
struct Undecided: Error {}

extension Term {
    /// A value that is known as it stands.
    fileprivate var isPlain: Bool {
        switch self {
        case .constant: true
        case .array(let parts, _): parts.allSatisfy { $0.isPlain }
        default: false
        }
    }
}

/// A collation as PostgreSQL derives it from the parts of an expression ("Collation Support: Concepts").
enum DerivedCollation: Equatable {
    case none
    case implicit(Collation)
    case explicit(Collation)
    /// Implicit ones that differ: an error as soon as it matters.
    case conflict

    static let database = Collation.deterministic(name: nil)

    func merged(with other: DerivedCollation) -> DerivedCollation {
        switch (self, other) {
        case (.none, let one), (let one, .none): one
        case (.explicit(let left), .explicit(let right)): left == right ? self : .conflict
        case (.explicit, _): self
        case (_, .explicit): other
        case (.conflict, _), (_, .conflict): .conflict
        case (.implicit(let left), .implicit(let right)):
            left == right || right == DerivedCollation.database
                ? self : left == DerivedCollation.database ? other : .conflict
        }
    }

    /// Of what an operator or function makes out of operands with this collation.
    static func ofResult(_ type: TypeFacts, _ operands: DerivedCollation) -> DerivedCollation {
        guard type.isCollatable else { return .none }
        guard operands == .none else { return operands }
        return .implicit(type.isName ? .bytewise : database)
    }

    /// The collation that a comparison uses.
    func decided() throws(Undecided) -> Collation {
        switch self {
        case .none: return .none
        case .implicit(let collation), .explicit(let collation): return collation
        case .conflict: throw Undecided()
        }
    }
}

extension [Typed] {
    var collation: DerivedCollation { reduce(.none) { $0.merged(with: $1.collation) } }
}

extension TypeFacts {
    static let numericType = TypeFacts(oid: 1700, name: "numeric")
    static let nameType = TypeFacts(oid: 19, name: "name")

    fileprivate var isName: Bool {
        if case .array(let element) = shape { return element.isName }
        return oid == 19
    }

    /// Of text in any of its forms. What extensions bring is not compared here, so its collation does not matter.
    var isCollatable: Bool {
        if case .array(let element) = shape { return element.isCollatable }
        return [19, 25, 1042, 1043].contains(oid)
    }

    /// Dates and times: their texts depend on settings of the session, or say `now`.
    var isTemporal: Bool {
        if case .array(let element) = shape { return element.isTemporal }
        return [1082, 1083, 1114, 1184, 1186, 1266].contains(oid)
    }

    /// Composites have a NULL of their own; enumerations have operators of their own only if somebody made them.
    var isOfUsers: Bool {
        if case .array(let element) = shape { return element.isOfUsers }
        return oid >= 16_384
    }
}
