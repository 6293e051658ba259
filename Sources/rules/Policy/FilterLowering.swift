/// Conversion of a checked filter to predicate nodes. The hub evaluates filters with the same functions as policies.
struct FilterLowering {
    private let check: FilterCheck
    private let canonical: [String]

    /// Converts the filter. `canonical` has the canonical text of each of the check's literals, in their order.
    static func node(_ check: FilterCheck, _ canonical: [String]) throws(FilterRefusal) -> PredicateNode {
        precondition(canonical.count == check.literals.count, "each literal has its canonical form")
        let node = try FilterLowering(check: check, canonical: canonical).node(check.root)
        precondition(
            node.slots.allSatisfy { check.root.slots.contains($0 % max(1, check.columns.count)) },
            "a column that the filter does not name")
        return node
    }

    private func node(_ node: CheckedNode) throws(FilterRefusal) -> PredicateNode {
        switch node {
        case .test(let test):
            let condition = try condition(test) ?? asked(test)
            try checkIsDecidable(condition, test)
            let placed = test.isOld ? condition.ofOldRow(columnCount: check.columns.count) : condition
            return test.isNegated ? .not(of: placed) : placed
        case .changed(let slot):
            return .test(
                PredicateTest(
                    slot: slot, oldSlot: check.columns.count + slot, operation: .changed,
                    comparator: Comparator(check.columns[slot])))
        case .all(let parts): return .all(of: try nodes(parts))
        case .any(let parts): return .any(of: try nodes(parts))
        case .not(let part): return .not(of: try self.node(part))
        }
    }

    private func nodes(_ parts: [CheckedNode]) throws(FilterRefusal) -> [PredicateNode] {
        var nodes: [PredicateNode] = []
        for part in parts { nodes.append(try node(part)) }
        return nodes
    }

    /// Throws a refusal if the filter reads the row before the change or the time of its commit, and only PostgreSQL can
    /// decide this condition. PostgreSQL would have to get values of an old row that the subscriber perhaps may not see,
    /// and it does not know the time of the commit.
    private func checkIsDecidable(_ node: PredicateNode, _ test: CheckedTest) throws(FilterRefusal) {
        guard !check.oldSlots.isEmpty || check.readsClock, node.mayAsk else { return }
        let column = check.columns[test.slot]
        throw .raised(
            "a filter with `changed`, `old.` or `now` has no conditions that only PostgreSQL can decide, such as "
                + "\(test.comparison.rawValue) on column \(column.name) of type \(column.type.name)")
    }

    /// Returns the node of a condition; nil if only PostgreSQL can decide it.
    private func condition(_ test: CheckedTest) throws(FilterRefusal) -> PredicateNode? {
        switch test.value {
        case .word(let word): return Self.condition(test.slot, word)
        case .ready(let elements): return condition(test, elements)
        case .relative(let offset):
            guard case .test(var relative)? = condition(test, [Array(String(offset).utf8)]) else { return nil }
            relative.isRelative = true
            return .test(relative)
        case .literal(let index):
            let text = Array(canonical[index].utf8)
            guard test.comparison == .in else { return condition(test, [text]) }
            guard let elements = ArrayText.elements(text) else { return nil }
            try check.checkCount(elements.count)
            return condition(test, elements)
        }
    }

    private static func condition(_ slot: Int, _ word: TruthWord) -> PredicateNode {
        switch word {
        case .null, .unknown: .isNull(slot)
        case .true: .test(PredicateTest(slot: slot, operation: .isTrue, comparator: Comparator(.opaque)))
        case .false: .test(PredicateTest(slot: slot, operation: .isFalse, comparator: Comparator(.opaque)))
        }
    }

    private func condition(_ test: CheckedTest, _ elements: [[UInt8]?]) -> PredicateNode? {
        assert(test.comparison == .in || elements.count == 1, "what is no list has one value")
        guard let operation = operation(test.comparison, check.columns[test.slot]) else { return nil }
        switch (test.comparison, operation) {
        // In a list for an array column, the elements form an array with one more dimension, not a list of arrays.
        case (.in, .compare(.equal, let comparator, _)) where !comparator.isArray:
            // A list without values is false on every row, but unknown where there is no row before the change.
            if test.isOld { return .isInOldRow(test.slot, comparator, elements) }
            return .isIn(test.slot, comparator, elements)
        case (.in, _): return nil
        case (.isdistinct, .compare(.equal, let comparator, _)):
            return (elements.first ?? nil).map { .isDistinct(test.slot, comparator, from: $0) }
        default: return (elements.first ?? nil).flatMap { .holding(test.slot, operation, $0) }
        }
    }

    private func operation(_ comparison: FilterOperator, _ column: ColumnFacts) -> Function.Operation? {
        assert(comparison != .is, "IS takes a word")
        let symbol = comparison == .isdistinct ? "=" : SQLType.symbol(comparison)
        let isPattern = comparison == .like || comparison == .ilike
        return Function.infix(
            symbol, column.type, isPattern ? .text : column.type, column.collation,
            text: check.settings.text)?.operation
    }

    private func asked(_ test: CheckedTest) -> PredicateNode {
        // For an empty list the result is false, even on NULL. A user's own operator may return anything for NULL.
        let isBuiltIn = check.columns[test.slot].type.oid < TypeOID.firstOfUsers
        let ofValue = isBuiltIn && test.comparison != .in
        return .test(
            PredicateTest(
                slot: test.slot,
                operation: test.comparison == .isdistinct ? .askWhetherDistinct : ofValue ? .askOfValue : .ask,
                comparator: Comparator(.opaque)))
    }
}
