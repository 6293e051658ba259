extension Term {
    /// Direct parts of the term.
    var parts: [Term] {
        switch self {
        case .constant, .column, .claims, .role, .undecided: []
        case .apply(_, let parts), .all(let parts), .any(let parts), .coalesce(let parts), .array(let parts, _): parts
        case .not(let part), .isNull(let part), .isTrue(let part), .isFalse(let part): [part]
        case .isDistinct(_, let left, let right), .nullIf(_, let left, let right): [left, right]
        case .choice(let branches, let otherwise): branches.flatMap { [$0.condition, $0.value] } + [otherwise]
        case .anyElement(_, let value, let array), .allElements(_, let value, let array): [value, array]
        case .element(let array, let index): [array, index]
        case .member(_, let key): key.map { [$0] } ?? []
        case .ofClaims(let term, _): term.map { [$0] } ?? []
        }
    }

    /// Returns a copy in which `change` has replaced each direct part.
    func mapParts(_ change: (Term) -> Term) -> Term {
        switch self {
        case .constant, .column, .claims, .role, .undecided: self
        case .apply(let function, let parts): .apply(function, parts.map(change))
        case .all(let parts): .all(parts.map(change))
        case .any(let parts): .any(parts.map(change))
        case .coalesce(let parts): .coalesce(parts.map(change))
        case .array(let parts, let type): .array(parts.map(change), type)
        case .not(let part): .not(change(part))
        case .isNull(let part): .isNull(change(part))
        case .isTrue(let part): .isTrue(change(part))
        case .isFalse(let part): .isFalse(change(part))
        case .isDistinct(let function, let left, let right): .isDistinct(function, change(left), change(right))
        case .nullIf(let function, let left, let right): .nullIf(function, change(left), change(right))
        case .choice(let branches, let otherwise):
            .choice(
                branches.map { Branch(when: change($0.condition), then: change($0.value)) },
                otherwise: change(otherwise))
        case .anyElement(let function, let value, let array):
            .anyElement(function, change(value), array: change(array))
        case .allElements(let function, let value, let array):
            .allElements(function, change(value), array: change(array))
        case .element(let array, let index): .element(change(array), index: change(index))
        case .member(let membership, let key): .member(membership, key: key.map(change))
        case .ofClaims(let term, let asked): .ofClaims(term.map(change), asked)
        }
    }

    /// Slots of the row's columns that the term reads.
    var slots: Set<Int> {
        if case .column(let slot, _) = self { return [slot] }
        return parts.reduce(into: []) { $0.formUnion($1.slots) }
    }

    /// True if only PostgreSQL may know the value for some rows.
    var mayAsk: Bool {
        switch self {
        case .undecided, .ofClaims, .claims, .role: true
        case .array(let elements, _) where elements.contains { $0.type?.element != nil }: true
        case .element(let array, _) where array.type?.element == nil: true
        case .apply(let function, let parts) where isPlainPattern: function.isFolding || parts[0].mayAsk
        case .apply(let function, let parts): function.mayAsk || parts.contains { $0.mayAsk }
        case .isDistinct(let function, _, _), .nullIf(let function, _, _):
            function.mayAsk || parts.contains { $0.mayAsk }
        case .anyElement(let function, _, _), .allElements(let function, _, _):
            function.mayAsk || parts.contains { $0.mayAsk }
        default: parts.contains { $0.mayAsk }
        }
    }

    /// True if PostgreSQL may raise an error for some rows.
    var mayFail: Bool {
        switch self {
        case .apply(_, let parts) where isPlainPattern: parts[0].mayFail
        case .apply(let function, let parts): function.mayFail || parts.contains { $0.mayFail }
        default: parts.contains { $0.mayFail }
        }
    }

    /// True for LIKE with a constant pattern that does not end with an escape.
    private var isPlainPattern: Bool {
        guard case .apply(let function, let parts) = self, case .like = function.operation, parts.count == 2,
            case .constant(let pattern?, _) = parts[1]
        else { return false }
        return !LikePattern.endsWithEscape(pattern)
    }

    /// True if the term always raises an error.
    var isFailure: Bool {
        if case .apply(let function, _) = self { return function.operation == .failure }
        return false
    }
}

extension Function {
    /// True for LIKE that ignores the case of ASCII letters only. PostgreSQL decides texts with other characters.
    fileprivate var isFolding: Bool {
        if case .like(_, .ofASCII) = operation { return true }
        return false
    }
}

extension Membership {
    /// Slots of the membership's table whose value is the same in all rows that count for one holder.
    public var fixedSlots: Set<Int> { condition.fixedSlots }
}

extension Term {
    fileprivate var fixedSlots: Set<Int> {
        switch self {
        case .all(let parts): return parts.reduce(into: []) { $0.formUnion($1.fixedSlots) }
        case .isTrue(let part): return part.fixedSlots
        case .apply(let function, let parts) where parts.count == 2:
            guard case .compare(.equal, _, _) = function.operation else { return [] }
            for (one, other) in [(parts[0], parts[1]), (parts[1], parts[0])] where other.slots.isEmpty {
                if let column = one.relabelledColumn { return [column.slot] }
            }
            return []
        default: return []
        }
    }
}
