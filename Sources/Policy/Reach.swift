/// By which keys a predicate can be found.
struct Reach {
    var access: Access
    /// Whoever has a key matches.
    var isExact: Bool

    init(_ tree: ResolvedNode, _ check: FilterCheck) {
        self = Self.of(tree)
        guard case .anyOf(let keys) = access, keys.count > check.settings.maximumKeys else { return }
        self = Reach(.scan, isExact: false)
    }

    /// Of a policy.
    init(_ node: PolicyNode, maximumKeys: Int) {
        self = Self.of(node)
        guard case .anyOf(let keys) = access, keys.count > maximumKeys else { return }
        self = Reach(.scan, isExact: false)
    }

    private init(_ access: Access, isExact: Bool) {
        self.access = access
        self.isExact = isExact
    }

    private static func of(_ node: ResolvedNode) -> Reach {
        switch node {
        case .test(let test): of(test)
        case .all(let parts): all(parts.map(of))
        case .any(let parts): any(parts.map(of))
        case .not: Reach(.scan, isExact: false)
        }
    }

    private static func of(_ node: PolicyNode) -> Reach {
        switch node {
        case .test(let test): of(test)
        case .all(let parts): all(parts.map(of))
        case .any(let parts): any(parts.map(of))
        case .isTrue(let part): of(part)
        case .constant(.yes): Reach(.always, isExact: false)
        // It never holds, but what is asked has to be reached.
        case .constant(let truth):
            truth.may(be: .yes) ? Reach(.scan, isExact: false) : Reach(.never, isExact: true)
        case .term, .not, .isFalse, .isUnknown, .choice, .coalesce: Reach(.scan, isExact: false)
        }
    }

    private static func of(_ test: PolicyTest) -> Reach {
        guard !test.isNegated, let form = test.comparator.keyForm else { return Reach(.scan, isExact: false) }
        switch test.operation {
        case .equal, .isIn:
            return keyed(
                test.constants.map { EqualityKey(slot: test.slot, form: form, bytes: $0) }, isExact: true)
        case .hasElement:
            // Only what is written with escapes is not found as a piece of the array's text.
            guard form == .asIs, !test.constants[0].contains(where: { "\"\\".utf8.contains($0) }) else {
                return Reach(.scan, isExact: false)
            }
            return keyed(
                [EqualityKey(slot: test.slot, form: form, bytes: test.constants[0], isElement: true)], isExact: true)
        default: return Reach(.scan, isExact: false)
        }
    }

    private static func of(_ test: ResolvedTest) -> Reach {
        guard !test.isAsked, !test.isNegated, test.comparison == .eq || test.comparison == .in,
            let form = test.comparator.keyForm
        else { return Reach(.scan, isExact: false) }
        let values = Set(test.elements.compactMap { $0 })
        let keys = values.map { EqualityKey(slot: test.slot, form: form, bytes: $0) }
        return keyed(keys, isExact: true)
    }

    private static func keyed(_ keys: [EqualityKey], isExact: Bool) -> Reach {
        if keys.isEmpty { return Reach(.never, isExact: true) }
        // Equal filters make equal predicates, in whatever order their values were written.
        return Reach(.anyOf(keys.sorted(by: isBefore)), isExact: isExact)
    }

    private static func isBefore(_ left: EqualityKey, _ right: EqualityKey) -> Bool {
        if left.slot != right.slot { return left.slot < right.slot }
        if left.isElement != right.isElement { return right.isElement }
        return left.bytes.lexicographicallyPrecedes(right.bytes)
    }

    /// The fewest keys are taken to select best.
    private static func all(_ parts: [Reach]) -> Reach {
        guard parts.count != 1 else { return parts[0] }
        var best = Reach(.scan, isExact: false)
        for part in parts {
            switch (part.access, best.access) {
            case (.never, _): return part
            case (.anyOf, .scan): best = part
            case (.anyOf(let keys), .anyOf(let others)) where keys.count < others.count: best = part
            default: break
            }
        }
        best.isExact = false
        return best
    }

    private static func any(_ parts: [Reach]) -> Reach {
        var keys: Set<EqualityKey> = []
        var isExact = true
        for part in parts {
            switch part.access {
            case .never: break
            case .anyOf(let more): keys.formUnion(more)
            case .always, .scan: return Reach(.scan, isExact: false)
            }
            isExact = isExact && part.isExact
        }
        return keyed(Array(keys), isExact: isExact)
    }
}
