import Bytes

/// Keys or range by which an index finds a predicate.
struct Reach {
    /// Way in which the index finds the predicate.
    var access: Access
    /// True if every row with one of the keys matches.
    var isExact: Bool

    init(_ node: PredicateNode, maximumKeys: Int) {
        self = Self.of(node)
        if case .anyOf(let keys) = access, keys.count > maximumKeys { self = Reach(.scan, isExact: false) }
        precondition(!isExact || access != .scan && access != .always, "keys that say all, and are none")
    }

    private init(_ access: Access, isExact: Bool) {
        self.access = access
        self.isExact = isExact
    }

    private static func of(_ node: PredicateNode) -> Reach {
        switch node {
        case .test(let test): of(test)
        case .all(let parts): all(parts.map(of))
        case .any(let parts): any(parts.map(of))
        case .isTrue(let part): of(part)
        case .constant(.yes): Reach(.always, isExact: false)
        // A constant that cannot be true matches nothing. If PostgreSQL may decide that it is true, every row must be
        // evaluated.
        case .constant(let truth):
            truth.may(be: .yes) ? Reach(.scan, isExact: false) : Reach(.never, isExact: true)
        case .term, .not, .isFalse, .isUnknown, .choice, .coalesce: Reach(.scan, isExact: false)
        }
    }

    private static func of(_ test: PredicateTest) -> Reach {
        if let range = range(test) { return Reach(.within(range), isExact: false) }
        guard !test.isNegated, let form = test.comparator.keyForm else { return Reach(.scan, isExact: false) }
        switch test.operation {
        case .like: return starting(test.constants[0], test.testedSlot)
        case .equal, .isIn:
            return keyed(
                test.constants.map { EqualityKey(slot: test.testedSlot, form: form, bytes: $0) }, isExact: true)
        case .hasElement:
            // An element that is written with escapes is not a part of the array's text, so it cannot be looked up.
            guard form == .asIs, !test.constants[0].contains(where: { "\"\\".utf8.contains($0) }) else {
                return Reach(.scan, isExact: false)
            }
            return keyed(
                [EqualityKey(slot: test.testedSlot, form: form, bytes: test.constants[0], part: .element)],
                isExact: true)
        default: return Reach(.scan, isExact: false)
        }
    }

    // MARK: Ranges and prefixes

    private static func range(_ test: PredicateTest) -> ValueRange? {
        guard let constant = test.constants.first, test.constants.count == 1, !test.isRelative else { return nil }
        switch test.operation {
        case .less, .lessOrEqual: return range(test.testedSlot, test.comparator, constant, isBelow: !test.isNegated)
        case .greater, .greaterOrEqual:
            return range(test.testedSlot, test.comparator, constant, isBelow: test.isNegated)
        default: return nil
        }
    }

    /// Returns the range that ends or begins at the constant. The constant is always included, because other values may
    /// have the same mapped number.
    private static func range(
        _ slot: Int, _ comparator: Comparator, _ constant: [UInt8], isBelow: Bool
    ) -> ValueRange? {
        guard let form = comparator.orderForm, let bound = form.number(constant.rawBytes) else { return nil }
        return isBelow
            ? ValueRange(slot: slot, form: form, high: bound) : ValueRange(slot: slot, form: form, low: bound)
    }

    /// Returns the access for a LIKE pattern: its bytes before the first wildcard as a prefix key.
    private static func starting(_ pattern: [UInt8], _ slot: Int) -> Reach {
        let (start, isAll) = LikePattern.beginning(pattern)
        guard !start.isEmpty, !LikePattern.endsWithEscape(pattern) else { return Reach(.scan, isExact: false) }
        let length = EqualityKey.prefixLength(start.count)
        assert(length > 0 && length <= start.count, "a beginning of what a pattern begins with")
        let key = EqualityKey(slot: slot, form: .asIs, bytes: Array(start.prefix(length)), part: .prefix)
        return Reach(.anyOf([key]), isExact: isAll && length == start.count)
    }

    private static func keyed(_ keys: [EqualityKey], isExact: Bool) -> Reach {
        if keys.isEmpty { return Reach(.never, isExact: true) }
        // The keys are sorted, so that filters with the same values in another order give equal predicates.
        let sorted = keys.sorted(by: isBefore)
        assert(zip(sorted, sorted.dropFirst()).allSatisfy(isBefore), "a key that is there twice")
        return Reach(.anyOf(sorted), isExact: isExact)
    }

    private static func isBefore(_ left: EqualityKey, _ right: EqualityKey) -> Bool {
        if left.slot != right.slot { return left.slot < right.slot }
        if left.part != right.part { return left.part.rawValue < right.part.rawValue }
        if left.form != right.form { return left.form.rawValue < right.form.rawValue }
        return left.bytes.lexicographicallyPrecedes(right.bytes)
    }

    /// Combines the parts of an AND. Of several lists of keys, the shortest is assumed to find the fewest rows.
    private static func all(_ parts: [Reach]) -> Reach {
        assert(!parts.isEmpty, "a group of nothing is a constant")
        guard parts.count != 1 else { return parts[0] }
        var best = Reach(narrowest(parts).map { .within($0) } ?? .scan, isExact: false)
        for part in parts {
            switch (part.access, best.access) {
            case (.never, _): return part
            case (.anyOf, .scan), (.anyOf, .within): best = part
            case (.anyOf(let keys), .anyOf(let others)) where keys.count < others.count: best = part
            default: break
            }
        }
        best.isExact = false
        return best
    }

    /// Returns the intersection of the ranges of one column. If the parts have ranges of several columns, the first
    /// with two bounds is preferred. Nil if there are no ranges.
    private static func narrowest(_ parts: [Reach]) -> ValueRange? {
        var ranges: [ValueRange] = []
        for part in parts {
            guard case .within(let range) = part.access else { continue }
            if let index = ranges.firstIndex(where: range.isOfSame) {
                ranges[index] = ranges[index].common(range)
            } else {
                ranges.append(range)
            }
        }
        return ranges.first(where: \.isBounded) ?? ranges.first
    }

    private static func any(_ parts: [Reach]) -> Reach {
        assert(!parts.isEmpty, "a group of nothing is a constant")
        if let hull = hull(parts) { return Reach(.within(hull), isExact: false) }
        var keys: Set<EqualityKey> = []
        var isExact = true
        for part in parts {
            switch part.access {
            case .never: break
            case .anyOf(let more): keys.formUnion(more)
            case .always, .scan, .within: return Reach(.scan, isExact: false)
            }
            isExact = isExact && part.isExact
        }
        return keyed(Array(keys), isExact: isExact)
    }

    /// Returns the smallest range that contains the ranges of all parts; nil unless all are ranges of one column.
    private static func hull(_ parts: [Reach]) -> ValueRange? {
        var hull: ValueRange?
        for part in parts {
            guard case .within(let range) = part.access else { return nil }
            guard let known = hull else {
                hull = range
                continue
            }
            guard let wider = known.hull(range) else { return nil }
            hull = wider
        }
        return hull
    }
}
