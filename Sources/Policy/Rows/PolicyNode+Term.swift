import Bytes

/// Turns a residual's term into nodes, with the keys of memberships in their places.
struct PolicyNodeMaker {
    let memberships: [HeldMembership]
    let keys: [MembershipKeys]

    func node(_ term: Term) -> PolicyNode {
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

    /// A boolean column by itself.
    private static func truth(_ slot: Int) -> PolicyTest {
        PolicyTest(
            slot: slot, operation: .equal, comparator: Comparator(.bytes), constants: [[UInt8(ascii: "t")]],
            mayAsk: false)
    }

    private func isNull(_ part: Term) -> PolicyNode {
        if let column = part.relabelledColumn {
            return .test(
                PolicyTest(slot: column.slot, operation: .isNull, comparator: Comparator(.opaque), mayAsk: false))
        }
        return part.isBoolean ? .isUnknown(node(part)).simplified : .term(filled(.isNull(part)))
    }

    private func leaf(_ term: Term) -> PolicyNode {
        if term.isFailure { return .constant(.failed) }
        return SimpleTest.node(term) ?? .term(filled(term))
    }

    // MARK: Memberships

    private func member(_ membership: Membership, _ key: Term?) -> PolicyNode {
        guard let index = memberships.firstIndex(where: { $0.membership == membership }), index < keys.count else {
            return .constant(.ask)
        }
        let held = keys[index]
        if held.hasFailed { return .constant(.failed) }
        if held.isUnknown { return .constant(.ask) }
        guard let key else { return .constant(held.hasRows ? .yes : .no) }
        if !held.hasRows || held.keys.isEmpty && !held.hasNull { return .constant(.no) }
        let type = key.type ?? .text
        // A membership's key is compared with the type's own equality, which is that of its canonical texts.
        let comparator = Comparator(ColumnFacts(name: "", type: type, collation: .deterministic(name: nil)))
        guard let form = comparator.keyForm else { return .constant(.ask) }
        if let column = key.relabelledColumn {
            return .test(
                PolicyTest(
                    slot: column.slot, operation: .isIn, hasNull: held.hasNull, comparator: comparator,
                    constants: SimpleTest.sorted(held.keys, form), mayAsk: false))
        }
        let equal = Function(.boolean, .compare(.equal, comparator, labels: []))
        let texts = held.keys.map { Optional($0) } + (held.hasNull ? [nil] : [])
        let array = Term.constant(ArrayText.text(texts), TypeFacts(oid: 0, name: "", shape: .array(of: type)))
        let term = Term.anyElement(equal, filled(key), array: array)
        guard key.slots.isEmpty else { return .term(term) }
        let none = RowImage(bytes: RawSpan(), places: [ColumnPlace]().span)
        return .constant(TermEvaluation.truth(term, none, maximumWork: .max))
    }

    /// A term that is evaluated as a whole: memberships inside are not seen there.
    private func filled(_ term: Term) -> Term { term.holdsMembership ? .undecided : term }
}

extension PolicyNode {
    /// Constants asked for what they are.
    var simplified: PolicyNode {
        switch self {
        case .isTrue(.constant(let verdict)): .constant(verdict.isExactly(.yes))
        case .isFalse(.constant(let verdict)): .constant(verdict.isExactly(.no))
        case .isUnknown(.constant(let verdict)): .constant(verdict.isExactly(.unknown))
        case .coalesce(let parts):
            {
                let known = parts.filter { $0 != .constant(.unknown) }
                return known.isEmpty ? .constant(.unknown) : known.count == 1 ? known[0] : .coalesce(known)
            }()
        default: self
        }
    }
}

extension Term {
    /// A column, perhaps seen through casts that leave its text as it is.
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

/// Conditions on one column that a predicate's tests can say.
enum SimpleTest {
    static func node(_ term: Term) -> PolicyNode? {
        switch term {
        case .apply(let function, let parts) where parts.count == 2: apply(function, parts[0], parts[1])
        case .isDistinct(let function, let left, let right): distinct(function, left, right)
        case .anyElement(let function, let value, let array): any(function, value, array)
        case .allElements(let function, let value, let array): all(function, value, array)
        default: nil
        }
    }

    static func sorted(_ constants: [[UInt8]], _ form: KeyForm) -> [[UInt8]] {
        let canonical = constants.map { Self.canonical($0, form) }
        var isAscending = true
        for index in canonical.indices.dropFirst()
        where !canonical[index - 1].lexicographicallyPrecedes(canonical[index]) { isAscending = false }
        return isAscending ? canonical : Array(Set(canonical)).sorted { $0.lexicographicallyPrecedes($1) }
    }

    private static func canonical(_ bytes: [UInt8], _ form: KeyForm?) -> [UInt8] {
        guard let form, form != .asIs else { return bytes }
        // SAFETY: any byte is a valid UInt8, and the span lives for the call.
        return form.canonical(unsafe bytes.span.bytes).copied()
    }

    // MARK: Operators

    private static func apply(_ function: Function, _ left: Term, _ right: Term) -> PolicyNode? {
        if let column = left.relabelledColumn, case .constant(let constant?, _) = right {
            return test(function.operation, column.slot, constant)
        }
        guard let column = right.relabelledColumn, case .constant(let constant?, _) = left else { return nil }
        switch function.operation {
        case .compare(let comparison, let comparator, let labels):
            return test(.compare(comparison.turned, comparator, labels: labels), column.slot, constant)
        case .contains(let comparator): return test(.isContained(comparator), column.slot, constant)
        case .isContained(let comparator): return test(.contains(comparator), column.slot, constant)
        case .overlaps: return test(function.operation, column.slot, constant)
        default: return nil
        }
    }

    private static func test(_ operation: Function.Operation, _ slot: Int, _ constant: [UInt8]) -> PolicyNode? {
        switch operation {
        case .compare(let comparison, let comparator, let labels):
            var test = compared(slot, comparator, constant)
            test.operation = Predicate.Test.Operation(comparison)
            test.isNegated = comparison == .notEqual
            test.labels = labels
            test.mayAsk = comparison.isOrder && comparator.kind == .enumeration
            return .test(test)
        case .contains(let comparator): return searched(slot, .contains, comparator, constant)
        case .isContained(let comparator): return searched(slot, .isContained, comparator, constant)
        case .overlaps(let comparator): return searched(slot, .overlaps, comparator, constant)
        case .like(let isNegated, let folding): return like(slot, constant, isNegated, folding)
        default: return nil
        }
    }

    private static func compared(_ slot: Int, _ comparator: Comparator, _ constant: [UInt8]) -> PolicyTest {
        PolicyTest(
            slot: slot, operation: .equal, comparator: comparator, constants: [canonical(constant, comparator.keyForm)],
            mayAsk: false)
    }

    private static func searched(
        _ slot: Int, _ operation: Predicate.Test.Operation, _ comparator: Comparator, _ constant: [UInt8]
    ) -> PolicyNode {
        .test(
            PolicyTest(slot: slot, operation: operation, comparator: comparator, constants: [constant], mayAsk: false))
    }

    private static func like(
        _ slot: Int, _ pattern: [UInt8], _ isNegated: Bool, _ folding: Function.Folding
    ) -> PolicyNode? {
        guard !LikePattern.endsWithEscape(pattern), folding != .ofASCII || pattern.allSatisfy({ $0 < 0x80 }) else {
            return nil
        }
        let operation: Predicate.Test.Operation =
            switch folding {
            case .none: .like
            case .plain: .likeFolded
            case .ofASCII: .likeFoldedASCII
            }
        return .test(
            PolicyTest(
                slot: slot, operation: operation, isNegated: isNegated, comparator: Comparator(.bytesUnordered),
                constants: [pattern], mayAsk: folding == .ofASCII))
    }

    private static func distinct(_ function: Function, _ left: Term, _ right: Term) -> PolicyNode? {
        guard case .compare(.equal, let comparator, _) = function.operation else { return nil }
        let sides = left.relabelledColumn == nil ? (right, left) : (left, right)
        guard let column = sides.0.relabelledColumn, case .constant(let constant, _) = sides.1 else { return nil }
        guard let constant else {
            return .test(
                PolicyTest(
                    slot: column.slot, operation: .isNull, isNegated: true, comparator: Comparator(.opaque),
                    mayAsk: false))
        }
        var test = compared(column.slot, comparator, constant)
        test.operation = .isDistinct
        return .test(test)
    }

    // MARK: Lists

    private static func any(_ function: Function, _ value: Term, _ array: Term) -> PolicyNode? {
        guard case .compare(.equal, let comparator, _) = function.operation, !comparator.isArray else { return nil }
        if let column = value.relabelledColumn, case .constant(let list?, _) = array {
            return isIn(column.slot, list, comparator, isNegated: false)
        }
        guard case .constant(let constant?, _) = value, let column = array.relabelledColumn else { return nil }
        return .test(
            PolicyTest(
                slot: column.slot, operation: .hasElement, comparator: comparator,
                constants: [canonical(constant, comparator.keyForm)], mayAsk: false))
    }

    /// NOT IN.
    private static func all(_ function: Function, _ value: Term, _ array: Term) -> PolicyNode? {
        guard case .compare(.notEqual, let comparator, _) = function.operation, !comparator.isArray,
            let column = value.relabelledColumn, case .constant(let list?, _) = array
        else { return nil }
        return isIn(column.slot, list, comparator, isNegated: true)
    }

    private static func isIn(
        _ slot: Int, _ list: [UInt8], _ comparator: Comparator, isNegated: Bool
    ) -> PolicyNode? {
        guard let elements = ArrayText.elements(list) else { return nil }
        let known = elements.compactMap { $0 }
        if known.isEmpty { return elements.isEmpty ? .constant(isNegated ? .yes : .no) : .constant(.unknown) }
        let form = comparator.keyForm
        return .test(
            PolicyTest(
                slot: slot, operation: .isIn, isNegated: isNegated, hasNull: known.count < elements.count,
                comparator: comparator, constants: form.map { sorted(known, $0) } ?? known, mayAsk: false))
    }
}

extension Predicate.Test.Operation {
    fileprivate init(_ comparison: Function.Comparison) {
        switch comparison {
        case .equal, .notEqual: self = .equal
        case .less: self = .less
        case .lessOrEqual: self = .lessOrEqual
        case .greater: self = .greater
        case .greaterOrEqual: self = .greaterOrEqual
        }
    }
}
