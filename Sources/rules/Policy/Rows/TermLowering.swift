import Bytes

/// Conversion of a residual's term to predicate nodes. It inserts the keys of memberships.
struct TermLowering {
    let memberships: [HeldMembership]
    let keys: [MembershipKeys]

    func node(_ term: Term) -> PredicateNode {
        switch term {
        case .constant(let text, _): .constant((text.map { .value($0) } ?? Outcome.null).truth)
        case .column(let slot, _): .test(Self.truth(slot))
        case .all(let parts): .all(of: parts.map(node))
        case .any(let parts): .any(of: parts.map(node))
        case .not(let part): .not(of: node(part))
        case .isTrue(let part): .isTrue(node(part)).simplified
        case .isFalse(let part): .isFalse(node(part)).simplified
        case .isNull(let part): isNull(part)
        case .choice(let branches, let otherwise):
            .choice(of: branches.map { (node($0.condition), node($0.value)) }, otherwise: node(otherwise))
        case .coalesce(let parts): .coalesce(parts.map(node)).simplified
        case .member(let membership, let key): member(membership, key)
        case .undecided, .ofClaims, .claims, .role: .constant(.ask)
        default: leaf(term)
        }
    }

    /// Returns the test that is true if a boolean column is true.
    private static func truth(_ slot: Int) -> PredicateTest {
        PredicateTest(slot: slot, operation: .equal, comparator: Comparator(.bytes), constants: [[UInt8(ascii: "t")]])
    }

    private func isNull(_ part: Term) -> PredicateNode {
        if let column = part.relabelledColumn { return .isNull(column.slot) }
        return part.isBoolean ? .isUnknown(node(part)).simplified : .term(filled(.isNull(part)))
    }

    private func leaf(_ term: Term) -> PredicateNode {
        if term.isFailure { return .constant(.failed) }
        return SimpleTerm.node(term) ?? .term(filled(term))
    }

    // MARK: Memberships

    private func member(_ membership: Membership, _ key: Term?) -> PredicateNode {
        guard let index = memberships.firstIndex(where: { $0.membership == membership }), index < keys.count else {
            return .constant(.ask)
        }
        let held = keys[index]
        assert(held.hasRows || held.hasFailed || held.isUnknown || held.keys.isEmpty, "keys of no row")
        if held.hasFailed { return .constant(.failed) }
        if held.isUnknown { return .constant(.ask) }
        guard let key else { return .constant(held.hasRows ? .yes : .no) }
        if !held.hasRows || held.keys.isEmpty && !held.hasNull { return .constant(.no) }
        let type = key.type ?? .text
        // The keys are compared with the ordinary equality of their type, which is that of their canonical texts.
        let comparator = Comparator(ColumnFacts(name: "", type: type, collation: .deterministic(name: nil)))
        guard comparator.keyForm != nil else { return .constant(.ask) }
        let texts = held.keys.map { Optional($0) } + (held.hasNull ? [nil] : [])
        if let column = key.relabelledColumn { return .isIn(column.slot, comparator, texts) }
        let equal = Function(.boolean, .compare(.equal, comparator, labels: []))
        let array = Term.constant(ArrayText.text(texts), TypeFacts(oid: 0, name: "", shape: .array(of: type)))
        let term = Term.anyElement(equal, filled(key), array: array)
        precondition(!term.holdsMembership, "a membership within what is evaluated as a whole is not followed")
        guard key.slots.isEmpty else { return .term(term) }
        let none = RowImage(bytes: RawSpan(), places: [ColumnPlace]().span)
        return .constant(TermEvaluation.truth(term, none, maximumWork: .max))
    }

    /// Returns the term, or undecided if it contains a membership. The evaluation of terms cannot read memberships.
    private func filled(_ term: Term) -> Term { term.holdsMembership ? .undecided : term }
}

extension Term {
    /// Column of the term, possibly within casts that do not change its text; nil for other terms.
    var relabelledColumn: (slot: Int, type: TypeFacts)? {
        switch self {
        case .column(let slot, let type): (slot, type)
        case .apply(let function, let parts) where function.operation == .relabel && parts.count == 1:
            parts[0].relabelledColumn.map { ($0.slot, function.result) }
        default: nil
        }
    }

    var type: TypeFacts? {
        switch self {
        case .constant(_, let type), .column(_, let type), .array(_, let type): type
        case .apply(let function, _): function.result
        case .claims: .text
        case .role: TypeFacts(oid: TypeOID.name, name: "name")
        case .choice(let branches, let otherwise): branches.first?.value.type ?? otherwise.type
        case .coalesce(let parts): parts.first?.type
        case .nullIf(_, let left, _): left.type
        case .element(let array, _): array.type?.element
        case .ofClaims(_, let asked): asked.type
        default: .boolean
        }
    }

    var isBoolean: Bool { type?.oid == TypeOID.bool }

    var holdsMembership: Bool {
        if case .member = self { return true }
        return parts.contains { $0.holdsMembership }
    }
}

// MARK: Conditions on one column

/// Conversion of terms that a predicate's tests can express.
private enum SimpleTerm {
    static func node(_ term: Term) -> PredicateNode? {
        switch term {
        case .apply(let function, let parts) where parts.count == 2: apply(function, parts[0], parts[1])
        case .isDistinct(let function, let left, let right): distinct(function, left, right)
        case .anyElement(let function, let value, let array): any(function, value, array)
        case .allElements(let function, let value, let array): all(function, value, array)
        default: nil
        }
    }

    private static func apply(_ function: Function, _ left: Term, _ right: Term) -> PredicateNode? {
        if let column = left.relabelledColumn, case .constant(let constant?, _) = right {
            return .holding(column.slot, function.operation, constant)
        }
        guard let column = right.relabelledColumn, case .constant(let constant?, _) = left,
            let turned = function.operation.turned
        else { return nil }
        return .holding(column.slot, turned, constant)
    }

    private static func distinct(_ function: Function, _ left: Term, _ right: Term) -> PredicateNode? {
        guard case .compare(.equal, let comparator, _) = function.operation else { return nil }
        let sides = left.relabelledColumn == nil ? (right, left) : (left, right)
        guard let column = sides.0.relabelledColumn, case .constant(let constant, _) = sides.1 else { return nil }
        return constant.map { .isDistinct(column.slot, comparator, from: $0) } ?? .not(of: .isNull(column.slot))
    }

    private static func any(_ function: Function, _ value: Term, _ array: Term) -> PredicateNode? {
        guard case .compare(.equal, let comparator, _) = function.operation, !comparator.isArray else { return nil }
        if let column = value.relabelledColumn, case .constant(let list?, _) = array {
            return ArrayText.elements(list).map { .isIn(column.slot, comparator, $0) }
        }
        guard case .constant(let constant?, _) = value, let column = array.relabelledColumn else { return nil }
        return .hasElement(column.slot, comparator, constant)
    }

    /// Returns the node of `value <> ALL (array)`, which is NOT IN; nil if no test expresses it.
    private static func all(_ function: Function, _ value: Term, _ array: Term) -> PredicateNode? {
        guard case .compare(.notEqual, let comparator, _) = function.operation, !comparator.isArray,
            let column = value.relabelledColumn, case .constant(let list?, _) = array
        else { return nil }
        return ArrayText.elements(list).map { .not(of: .isIn(column.slot, comparator, $0)) }
    }
}

extension Function.Operation {
    /// Operation that gives the same result when both sides are exchanged; nil if there is none.
    fileprivate var turned: Function.Operation? {
        switch self {
        case .compare(let comparison, let comparator, let labels):
            .compare(comparison.turned, comparator, labels: labels)
        case .contains(let comparator): .isContained(comparator)
        case .isContained(let comparator): .contains(comparator)
        case .overlaps: self
        default: nil
        }
    }
}
