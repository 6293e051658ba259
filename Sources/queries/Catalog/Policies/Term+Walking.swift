import Policy

extension Term {
    /// Subterms directly below this term. Conditions of memberships are omitted, because they concern rows of other
    /// tables.
    var parts: [Term] {
        switch self {
        case .constant, .column, .claims, .role, .undecided: []
        case .apply(_, let terms), .all(let terms), .any(let terms), .coalesce(let terms), .array(let terms, _): terms
        case .not(let term), .isNull(let term), .isTrue(let term), .isFalse(let term): [term]
        case .isDistinct(_, let one, let other), .nullIf(_, let one, let other): [one, other]
        case .anyElement(_, let value, let array), .allElements(_, let value, let array): [value, array]
        case .choice(let branches, let otherwise): branches.flatMap { [$0.condition, $0.value] } + [otherwise]
        case .element(let array, let index): [array, index]
        case .member(_, let key): key.map { [$0] } ?? []
        case .ofClaims(let term, _): term.map { [$0] } ?? []
        }
    }

    public func visit(_ body: (Term) -> Void) {
        body(self)
        for part in parts { part.visit(body) }
    }

    public func contains(_ isWanted: (Term) -> Bool) -> Bool {
        isWanted(self) || parts.contains { $0.contains(isWanted) }
    }

    /// Slots of the row's columns that the term reads.
    var slots: Set<Int> {
        var slots: Set<Int> = []
        visit { if case .column(let slot, _) = $0 { slots.insert(slot) } }
        return slots
    }

    /// Returns a copy of the term in which `body` has replaced each membership.
    public func replacingMembers(_ body: (Membership, Term?) -> Term) -> Term {
        func again(_ term: Term) -> Term { term.replacingMembers(body) }
        switch self {
        case .constant, .column, .claims, .role, .undecided, .ofClaims: return self
        case .apply(let function, let terms): return .apply(function, terms.map(again))
        case .all(let terms): return .all(terms.map(again))
        case .any(let terms): return .any(terms.map(again))
        case .coalesce(let terms): return .coalesce(terms.map(again))
        case .array(let terms, let type): return .array(terms.map(again), type)
        case .not(let term): return .not(again(term))
        case .isNull(let term): return .isNull(again(term))
        case .isTrue(let term): return .isTrue(again(term))
        case .isFalse(let term): return .isFalse(again(term))
        case .isDistinct(let function, let one, let other): return .isDistinct(function, again(one), again(other))
        case .nullIf(let function, let one, let other): return .nullIf(function, again(one), again(other))
        case .anyElement(let function, let value, let array):
            return .anyElement(function, again(value), array: again(array))
        case .allElements(let function, let value, let array):
            return .allElements(function, again(value), array: again(array))
        case .choice(let branches, let otherwise):
            return .choice(
                branches.map { .init(when: again($0.condition), then: again($0.value)) }, otherwise: again(otherwise))
        case .element(let array, let index): return .element(again(array), index: again(index))
        case .member(let membership, let key): return body(membership, key.map(again))
        }
    }

    static let boolean = TypeFacts(oid: 16, name: "boolean")
    public static let never = Term.constant(Array("f".utf8), boolean)
    public static let always = Term.constant(Array("t".utf8), boolean)
}
