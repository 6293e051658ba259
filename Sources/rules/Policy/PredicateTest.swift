import Bytes

/// Test that compares one column with constants.
struct PredicateTest: Sendable, Hashable {
    var slot: Int
    /// Slot of the same column in the row before the change, if the test reads it; nil if the test reads only the row.
    var oldSlot: Int?
    var operation: Predicate.Test.Operation
    var isNegated = false
    /// True if the constant is the number of microseconds from the commit of the change to the time that is meant.
    var isRelative = false
    /// True if the list of an `in` contains NULL.
    var hasNull = false
    var comparator: Comparator
    /// Constants in canonical form.
    var constants: [[UInt8]] = []
    /// Labels of the enumeration in their order, if the test depends on the order.
    var labels: [[UInt8]] = []

    /// Slot of the value that is compared with the constants.
    var testedSlot: Int { oldSlot ?? slot }

    /// True if only PostgreSQL can decide the test for some values of the column's type.
    var mayAsk: Bool {
        switch operation {
        case .ask, .askOfValue, .askWhetherDistinct, .likeFoldedASCII: true
        case .less, .lessOrEqual, .greater, .greaterOrEqual: comparator.kind == .enumeration
        case .equal, .isNull, .isTrue, .isFalse, .isDistinct, .isIn, .contains, .isContained, .overlaps, .hasElement,
            .like, .likeFolded, .changed:
            false
        }
    }

    /// True if the hub can decide the test for every text, even one that is not a value of the column's type.
    var alwaysTells: Bool {
        switch operation {
        case .isNull, .isTrue, .isFalse: true
        case .equal, .isDistinct, .isIn: comparator.keyForm != nil
        case .less, .lessOrEqual, .greater, .greaterOrEqual, .contains, .isContained, .overlaps, .hasElement, .like,
            .likeFolded, .likeFoldedASCII, .ask, .askOfValue, .askWhetherDistinct, .changed:
            false
        }
    }
}

// MARK: Conditions on one column

extension PredicateNode {
    static func isNull(_ slot: Int) -> PredicateNode {
        .test(PredicateTest(slot: slot, operation: .isNull, comparator: Comparator(.opaque)))
    }

    /// Returns the test of an operator with a column on its left and a constant on its right. Nil if there is no such
    /// test.
    static func holding(_ slot: Int, _ operation: Function.Operation, _ constant: [UInt8]) -> PredicateNode? {
        switch operation {
        case .compare(let comparison, let comparator, let labels):
            var test = compared(slot, Predicate.Test.Operation(comparison), comparator, constant)
            test.isNegated = comparison == .notEqual
            test.labels = labels
            return .test(test)
        case .contains(let comparator): return searched(slot, .contains, comparator, constant)
        case .isContained(let comparator): return searched(slot, .isContained, comparator, constant)
        case .overlaps(let comparator): return searched(slot, .overlaps, comparator, constant)
        case .like(let isNegated, let folding): return like(slot, constant, isNegated, folding)
        default: return nil
        }
    }

    /// Returns the test for the row before the change, whose values have the slots after those of the row.
    func ofOldRow(columnCount: Int) -> PredicateNode {
        guard case .test(var test) = self else { preconditionFailure("a condition on an old row is a test") }
        test.oldSlot = columnCount + test.slot
        return .test(test)
    }

    static func isDistinct(_ slot: Int, _ comparator: Comparator, from constant: [UInt8]) -> PredicateNode {
        .test(compared(slot, .isDistinct, comparator, constant))
    }

    /// Returns a test that is true if the constant equals an element of the column's array.
    static func hasElement(_ slot: Int, _ comparator: Comparator, _ constant: [UInt8]) -> PredicateNode {
        .test(compared(slot, .hasElement, comparator, constant))
    }

    static func isIn(_ slot: Int, _ comparator: Comparator, _ elements: [[UInt8]?]) -> PredicateNode {
        let isConstant = elements.allSatisfy { $0 == nil }
        if isConstant { return .constant(elements.isEmpty ? .no : .unknown) }
        return isInOldRow(slot, comparator, elements)
    }

    /// Returns the test of a list as `isIn` does, but a test also for a list without values.
    static func isInOldRow(_ slot: Int, _ comparator: Comparator, _ elements: [[UInt8]?]) -> PredicateNode {
        let known = elements.compactMap { $0 }
        return .test(
            PredicateTest(
                slot: slot, operation: .isIn, hasNull: known.count < elements.count, comparator: comparator,
                constants: comparator.keyForm.map { ordered(known, $0) } ?? known))
    }

    private static func compared(
        _ slot: Int, _ operation: Predicate.Test.Operation, _ comparator: Comparator, _ constant: [UInt8]
    ) -> PredicateTest {
        PredicateTest(
            slot: slot, operation: operation, comparator: comparator,
            constants: [canonical(constant, comparator.keyForm)])
    }

    private static func searched(
        _ slot: Int, _ operation: Predicate.Test.Operation, _ comparator: Comparator, _ constant: [UInt8]
    ) -> PredicateNode {
        .test(PredicateTest(slot: slot, operation: operation, comparator: comparator, constants: [constant]))
    }

    private static func like(
        _ slot: Int, _ pattern: [UInt8], _ isNegated: Bool, _ folding: Function.Folding
    ) -> PredicateNode? {
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
            PredicateTest(
                slot: slot, operation: operation, isNegated: isNegated, comparator: Comparator(.bytesUnordered),
                constants: [pattern]))
    }

    /// Returns the constants in canonical form, without duplicates, sorted for binary search.
    private static func ordered(_ constants: [[UInt8]], _ form: KeyForm) -> [[UInt8]] {
        let canonical = constants.map { Self.canonical($0, form) }
        var isAscending = true
        for index in canonical.indices.dropFirst()
        where !canonical[index - 1].lexicographicallyPrecedes(canonical[index]) { isAscending = false }
        return isAscending ? canonical : Array(Set(canonical)).sorted { $0.lexicographicallyPrecedes($1) }
    }

    private static func canonical(_ bytes: [UInt8], _ form: KeyForm?) -> [UInt8] {
        guard let form, form != .asIs else { return bytes }
        // SAFETY: any byte is a valid UInt8, and the span lives for the call.
        let canonical = form.canonical(unsafe bytes.span.bytes).copied()
        assert(unsafe form.equals(bytes.span.bytes, canonical: canonical.span.bytes), "a constant that is not itself")
        return canonical
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
