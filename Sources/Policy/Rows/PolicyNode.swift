/// A residual as a tree of what a predicate's program can say, simplified, so that what says the same is the same.
indirect enum PolicyNode: Sendable, Hashable {
    case constant(Truth)
    case test(PolicyTest)
    case term(Term)
    case all([PolicyNode])
    case any([PolicyNode])
    case not(PolicyNode)
    case isTrue(PolicyNode)
    case isFalse(PolicyNode)
    case isUnknown(PolicyNode)
    /// Conditions, each with its value behind it, and what holds otherwise.
    case choice([PolicyNode])
    case coalesce([PolicyNode])
}

/// A column held against constants.
struct PolicyTest: Sendable, Hashable {
    var slot: Int
    var operation: Predicate.Test.Operation
    var isNegated = false
    var hasNull = false
    var comparator: Comparator
    /// Canonical.
    var constants: [[UInt8]] = []
    /// Of an enumeration whose order counts.
    var labels: [[UInt8]] = []
    var mayAsk: Bool
}

// MARK: Making

extension PolicyNode {
    static func not(of node: PolicyNode) -> PolicyNode {
        switch node {
        case .constant(let verdict): return .constant(verdict.negated)
        case .not(let inner): return inner
        case .test(var test):
            test.isNegated.toggle()
            return .test(test)
        default: return .not(node)
        }
    }

    static func all(of parts: [PolicyNode]) -> PolicyNode { group(parts, decides: .no) }

    static func any(of parts: [PolicyNode]) -> PolicyNode { group(parts, decides: .yes) }

    /// CASE: conditions with their values, and what holds otherwise.
    static func choice(of branches: [(condition: PolicyNode, value: PolicyNode)], otherwise: PolicyNode) -> PolicyNode {
        var parts: [PolicyNode] = []
        var otherwise = otherwise
        for branch in branches {
            if branch.condition == .constant(.no) || branch.condition == .constant(.unknown) { continue }
            if branch.condition == .constant(.yes) {
                otherwise = branch.value
                break
            }
            parts += [branch.condition, branch.value]
        }
        return parts.isEmpty ? otherwise : .choice(parts + [otherwise])
    }

    /// Flat, each part once, in one order, without constants that say nothing.
    private static func group(_ parts: [PolicyNode], decides: Truth) -> PolicyNode {
        var constant = decides.negated
        var rest: Set<PolicyNode> = []
        var ordered: [PolicyNode] = []
        for part in parts.flatMap({ $0.parts(ofGroupThat: decides) }) {
            if case .constant(let verdict) = part {
                if verdict == decides { return part }
                if verdict != constant { constant = constant.joined(verdict, inGroupThat: decides) }
            } else if rest.insert(part).inserted {
                ordered.append(part)
            }
        }
        if ordered.isEmpty { return .constant(constant) }
        if constant != decides.negated { ordered.append(.constant(constant)) }
        if ordered.count == 1 { return ordered[0] }
        ordered = ordered.map { (key: $0.place, node: $0) }.sorted { $0.key < $1.key }.map(\.node)
        return decides == .no ? .all(ordered) : .any(ordered)
    }

    private func parts(ofGroupThat decides: Truth) -> [PolicyNode] {
        switch (self, decides) {
        case (.all(let parts), .no), (.any(let parts), .yes): parts
        default: [self]
        }
    }

    /// Where it stands in a group: what is cheap first; among equals it only has to be the same place each time.
    private var place: (cost: Int, hash: Int) { (cost, hashValue) }

    private var cost: Int {
        switch self {
        case .test(let test): test.mayAsk ? 1 : 0
        case .all, .any, .not, .isTrue, .isFalse, .isUnknown, .choice, .coalesce: 2
        case .term: 3
        case .constant: 4
        }
    }
}

// MARK: What it needs

extension PolicyNode {
    var slots: Set<Int> {
        switch self {
        case .constant: []
        case .test(let test): [test.slot]
        case .term(let term): term.slots
        case .all(let parts), .any(let parts), .choice(let parts), .coalesce(let parts):
            parts.reduce(into: []) { $0.formUnion($1.slots) }
        case .not(let part), .isTrue(let part), .isFalse(let part), .isUnknown(let part): part.slots
        }
    }

    /// Whether there may be rows, whole ones, that only PostgreSQL can judge.
    var mayAsk: Bool {
        switch self {
        case .constant(let truth): truth.isAsked
        case .test(let test): test.mayAsk
        case .term(let term): term.mayAsk
        case .all(let parts), .any(let parts), .choice(let parts), .coalesce(let parts):
            parts.contains { $0.mayAsk }
        case .not(let part), .isTrue(let part), .isFalse(let part), .isUnknown(let part): part.mayAsk
        }
    }
}

extension Term {
    /// The terms directly within.
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

    /// The same with other parts.
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

    var slots: Set<Int> {
        if case .column(let slot, _) = self { return [slot] }
        return parts.reduce(into: []) { $0.formUnion($1.slots) }
    }

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

    var mayFail: Bool {
        switch self {
        case .apply(_, let parts) where isPlainPattern: parts[0].mayFail
        case .apply(let function, let parts): function.mayFail || parts.contains { $0.mayFail }
        default: parts.contains { $0.mayFail }
        }
    }

    /// LIKE with a pattern that is known to be one.
    private var isPlainPattern: Bool {
        guard case .apply(let function, let parts) = self, case .like = function.operation, parts.count == 2,
            case .constant(let pattern?, _) = parts[1]
        else { return false }
        return !LikePattern.endsWithEscape(pattern)
    }

    /// Whether the function fails, whatever the row.
    var isFailure: Bool {
        if case .apply(let function, _) = self { return function.operation == .failure }
        return false
    }
}

extension Function {
    /// Other letters than those of ASCII are PostgreSQL's.
    fileprivate var isFolding: Bool {
        if case .like(_, .ofASCII) = operation { return true }
        return false
    }
}
