import Bytes

/// Condition of a filter or policy, as a tree of the operations that predicates have. The tree is simplified, so that
/// equal conditions become equal trees.
indirect enum PredicateNode: Sendable, Hashable {
    case constant(Truth)
    case test(PredicateTest)
    case term(Term)
    case all([PredicateNode])
    case any([PredicateNode])
    case not(PredicateNode)
    case isTrue(PredicateNode)
    case isFalse(PredicateNode)
    case isUnknown(PredicateNode)
    /// CASE: conditions, each followed by its value, and finally the ELSE value.
    case choice([PredicateNode])
    case coalesce([PredicateNode])
}

// MARK: Making

extension PredicateNode {
    static func not(of node: PredicateNode) -> PredicateNode {
        switch node {
        case .constant(let verdict): return .constant(verdict.negated)
        case .not(let inner): return inner
        case .test(var test):
            test.isNegated.toggle()
            return .test(test)
        default: return .not(node)
        }
    }

    static func all(of parts: [PredicateNode]) -> PredicateNode {
        let all = group(parts, decides: .no)
        assert(all != .constant(.yes) || parts.allSatisfy { $0 == .constant(.yes) }, "a condition was lost")
        return all
    }

    static func any(of parts: [PredicateNode]) -> PredicateNode { group(parts, decides: .yes) }

    /// Creates a CASE from conditions with their values and from the ELSE value.
    static func choice(
        of branches: [(condition: PredicateNode, value: PredicateNode)], otherwise: PredicateNode
    ) -> PredicateNode {
        var parts: [PredicateNode] = []
        var otherwise = otherwise
        for branch in branches {
            if branch.condition == .constant(.no) || branch.condition == .constant(.unknown) { continue }
            if branch.condition == .constant(.yes) {
                otherwise = branch.value
                break
            }
            parts += [branch.condition, branch.value]
        }
        assert(parts.count.isMultiple(of: 2), "each condition has its value")
        return parts.isEmpty ? otherwise : .choice(parts + [otherwise])
    }

    /// Creates an AND or OR without nested groups of the same kind, duplicate parts, and constants that have no effect.
    /// Its parts are sorted.
    private static func group(_ parts: [PredicateNode], decides: Truth) -> PredicateNode {
        var constant = decides.negated
        var rest: Set<PredicateNode> = []
        var ordered: [PredicateNode] = []
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
        ordered = sorted(ordered)
        assert(ordered.count >= 2 && !ordered.contains(.constant(decides)), "a group that is decided is none")
        return decides == .no ? .all(ordered) : .any(ordered)
    }

    /// Sorts the parts by cost, cheapest first. Parts of equal cost are sorted by hash, which is the same in every
    /// process. Parts with equal hashes keep their order.
    private static func sorted(_ parts: [PredicateNode]) -> [PredicateNode] {
        let places = parts.enumerated().map { (at: $0, cost: $1.cost, hash: $1.structuralHash) }
        let sorted = places.sorted { ($0.cost, $0.hash, $0.at) < ($1.cost, $1.hash, $1.at) }.map { parts[$0.at] }
        assert(Set(sorted) == Set(parts) && sorted.count == parts.count, "a part was lost")
        return sorted
    }

    private func parts(ofGroupThat decides: Truth) -> [PredicateNode] {
        switch (self, decides) {
        case (.all(let parts), .no), (.any(let parts), .yes): parts
        default: [self]
        }
    }

    private var cost: Int {
        switch self {
        case .test(let test): test.mayAsk ? 1 : 0
        case .all, .any, .not, .isTrue, .isFalse, .isUnknown, .choice, .coalesce: 2
        case .term: 3
        case .constant: 4
        }
    }
}

// MARK: Requirements

extension PredicateNode {
    /// Direct parts of the node.
    var parts: [PredicateNode] {
        switch self {
        case .constant, .test, .term: []
        case .all(let parts), .any(let parts), .choice(let parts), .coalesce(let parts): parts
        case .not(let part), .isTrue(let part), .isFalse(let part), .isUnknown(let part): [part]
        }
    }

    /// Column slots that the node reads.
    var slots: Set<Int> {
        switch self {
        case .test(let test): test.oldSlot.map { [test.slot, $0] } ?? [test.slot]
        case .term(let term): term.slots
        default: parts.reduce(into: []) { $0.formUnion($1.slots) }
        }
    }

    /// True if only PostgreSQL can decide some rows, even if no column is absent.
    var mayAsk: Bool {
        switch self {
        case .constant(let truth): truth.isAsked
        case .test(let test): test.mayAsk
        case .term(let term): term.mayAsk
        default: parts.contains { $0.mayAsk }
        }
    }

    /// True if the hub can decide every row without absent columns, even if a text is not a value of its column's type.
    var alwaysTells: Bool {
        switch self {
        case .constant(let truth): !truth.isAsked
        case .test(let test): test.alwaysTells
        case .term: false
        default: parts.allSatisfy { $0.alwaysTells }
        }
    }

    /// Equivalent node in which tests of a constant are replaced by their result, and COALESCE has no constant NULL.
    var simplified: PredicateNode {
        switch self {
        case .isTrue(.constant(let verdict)): return .constant(verdict.isExactly(.yes))
        case .isFalse(.constant(let verdict)): return .constant(verdict.isExactly(.no))
        case .isUnknown(.constant(let verdict)): return .constant(verdict.isExactly(.unknown))
        case .coalesce(let parts):
            let known = parts.filter { $0 != .constant(.unknown) }
            return known.isEmpty ? .constant(.unknown) : known.count == 1 ? known[0] : .coalesce(known)
        default: return self
        }
    }
}
