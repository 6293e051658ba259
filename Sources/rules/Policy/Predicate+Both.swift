extension Predicate {
    /// True if PostgreSQL may have to be asked about the policy, not only about the filter.
    public var mayAskPolicy: Bool { asker != nil }

    /// Returns a predicate that is true if both are: the filter of a subscription, and the policy for its holder.
    public static func both(_ filter: Predicate, _ policy: Predicate) -> Predicate {
        if policy == .always { return filter }
        if filter == .always { return policy }
        if filter.access == .never || policy.access == .never { return .never }
        return common(filter, policy) ?? Predicate(filter, and: policy)
    }

    /// Returns the smaller of two lists of values of the same column if the larger one contains it. Returns `never` if
    /// the lists have no value in common. Nil in all other cases.
    private static func common(_ filter: Predicate, _ policy: Predicate) -> Predicate? {
        guard filter.isDecidedByAccess, policy.isDecidedByAccess, case .anyOf(let keys) = filter.access,
            case .anyOf(let others) = policy.access, let first = keys.first,
            (keys + others).allSatisfy({ $0.slot == first.slot && $0.form == first.form && $0.part == .whole })
        else { return nil }
        let allowed = Set(others)
        let both = keys.filter { allowed.contains($0) }
        if both.isEmpty { return .never }
        assert(both.count <= min(keys.count, others.count), "keys that only one of them has")
        if both.count == keys.count { return filter }
        return both.count == others.count ? policy : nil
    }

    private init(_ filter: Predicate, and policy: Predicate) {
        // The policy is also evaluated on the row before the change, if the filter reads that row.
        let ofOldRow = filter.oldRowStart.map { start in policy.slots.map { start + $0 } } ?? []
        slots = Set(filter.slots + policy.slots + ofOldRow).sorted()
        oldRowStart = filter.oldRowStart
        // The filter's nodes follow the AND node that joins filter and policy.
        filterStart = filter.filterStart.map { $0 + 1 }
        policyStart = filter.oldRowStart.map { _ in 1 + filter.program.count }
        question = filter.question
        asker = policy.asker
        isDecidedByAccess = false
        access = Self.better(filter.access, policy.access)
        maximumWork = min(filter.maximumWork, policy.maximumWork)
        effort = filter.effort
        let parts = ProgramJoiner(filter, policy)
        program = parts.program
        tests = parts.tests
        constants = filter.constants + parts.constants
        pool = filter.pool + policy.pool
        terms = filter.terms + policy.terms
        precondition(policy.question == nil && filter.asker == nil, "a filter and a policy, in that order")
        precondition(policy.oldRowStart == nil && filter.policyStart == nil, "a policy that reads the row before")
        checkInvariants()
    }

    /// Returns the access that probably finds fewer rows. Of two lists of keys, that is assumed of the shorter one.
    private static func better(_ left: Access, _ right: Access) -> Access {
        switch (left, right) {
        case (.anyOf(let keys), .anyOf(let others)): others.count < keys.count ? right : left
        case (.anyOf, _): left
        case (_, .anyOf): right
        case (.within(let range), .within(let other)): .within(range.common(other))
        case (.within, _): left
        case (_, .within): right
        default: .scan
        }
    }
}

/// Program that joins the programs of a filter and a policy by AND. Indices of the policy's program are shifted.
private struct ProgramJoiner {
    private(set) var program: [Predicate.Node]
    private(set) var tests: [Predicate.Test]
    private(set) var constants: [Predicate.Constant] = []

    init(_ filter: Predicate, _ policy: Predicate) {
        let count = Int32(1 + filter.program.count + policy.program.count)
        program = [Predicate.Node(kind: .all, test: 0, end: count)]
        tests = filter.tests
        for node in filter.program {
            program.append(Predicate.Node(kind: node.kind, test: node.test, end: node.end + 1))
        }
        let places = Int32(1 + filter.program.count)
        for node in policy.program {
            var moved = node
            moved.end += places
            if node.kind == .test { moved.test += Int32(filter.tests.count) }
            if node.kind == .term { moved.test += Int32(filter.terms.count) }
            program.append(moved)
        }
        for test in policy.tests {
            var moved = test
            moved.firstConstant += Int32(filter.constants.count)
            moved.comparator.firstLabel += Int32(filter.constants.count)
            tests.append(moved)
        }
        for constant in policy.constants {
            constants.append(
                Predicate.Constant(start: constant.start + Int32(filter.pool.count), length: constant.length))
        }
    }
}
