/// Checked part of an expression, with the facts that the checker knows about it.
struct Typed {
    var type: TypeFacts
    var collation: DerivedCollation
    /// Term that the hub can evaluate. Nil only if the value depends only on claims and PostgreSQL can be asked for it.
    var term: Term?
    /// True if the value depends on the row or changes with time, so that it is not evaluated once for each holder.
    var readsRow = false
    /// True if a part is `.undecided` or a membership. Such a part may be used in AND, OR, NOT and similar, but not as
    /// the side of an operator.
    var isDecision = false
    /// True if PostgreSQL may be asked for the value once for each holder.
    var canBeAsked = true
    /// True if all called functions come with PostgreSQL.
    var isBuiltIn = true
    /// True if the expression may have any number of values, such as `unnest(…)`.
    var isSet = false
    /// Expression as a tree, in which functions written in SQL are replaced by their bodies.
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

    /// Returns the term of the value, for use in an expression that reads the row.
    func sealed() throws(Undecided) -> Term {
        guard !isSet else { throw Undecided() }
        precondition(!readsRow || !canBeAsked, "what reads the row has no one value for its holder")
        if let term, readsRow || term.isPlain { return term }
        if canBeAsked { return .ofClaims(term, asked) }
        guard let term else { throw Undecided() }
        return term
    }
}

/// Error for an expression that the checker does not understand, or that only PostgreSQL can decide.
struct Undecided: Error {}

extension Term {
    /// True if the term is a constant, or an array of constants.
    fileprivate var isPlain: Bool {
        switch self {
        case .constant: true
        case .array(let parts, _): parts.allSatisfy { $0.isPlain }
        default: false
        }
    }
}

/// Collation that PostgreSQL derives from the parts of an expression (see "Collation Support: Concepts" in its manual).
enum DerivedCollation: Equatable {
    case none
    case implicit(Collation)
    case explicit(Collation)
    /// Implicit collations that differ. PostgreSQL raises an error where the collation matters.
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

    /// Returns the collation of the result of an operator or function, derived from the operands' collation.
    static func ofResult(_ type: TypeFacts, _ operands: DerivedCollation) -> DerivedCollation {
        guard type.isCollatable else { return .none }
        guard operands == .none else { return operands }
        return .implicit(type.isName ? .bytewise : database)
    }

    /// Returns the collation that a comparison uses. Throws if collations conflict.
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

    /// True for text types and arrays of them. The hub does not compare types of extensions, so their collation does
    /// not matter.
    var isCollatable: Bool {
        if case .array(let element) = shape { return element.isCollatable }
        return [19, 25, 1042, 1043].contains(oid)
    }

    /// True for dates and times, whose texts can depend on settings of the session or be words such as `now`.
    var isTemporal: Bool {
        if case .array(let element) = shape { return element.isTemporal }
        return [1082, 1083, 1114, 1184, 1186, 1266].contains(oid)
    }

    /// True for types of users and extensions. Composite types have their own rule for NULL; enumerations may have
    /// users' operators.
    var isOfUsers: Bool {
        if case .array(let element) = shape { return element.isOfUsers }
        return oid >= 16_384
    }
}
