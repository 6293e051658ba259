import Bytes

/// Hashes that are the same in every process. Swift's own hashes have a random seed in each process, so that an order
/// based on them would differ. If an attacker may choose the hashed values, the caller begins the hash with a secret
/// seed.
extension Predicate {
    /// Adds the predicate to the hash. Equal predicates have equal hashes.
    public func combine(into hash: inout KeyHash) {
        // SAFETY: any byte is a valid UInt8, and the span lives for the call.
        hash.combine(unsafe pool.span.bytes)
        for node in program { hash.combine(UInt64(node.kind.rawValue) << 32 | UInt64(UInt32(bitPattern: node.test))) }
        for test in tests {
            hash.combine(UInt64(UInt32(bitPattern: test.slot)) << 32 | UInt64(UInt32(bitPattern: test.constantCount)))
            if test.isRelative { hash.combine(1 << 40) }
            if test.readsOldRow { hash.combine(UInt64(UInt32(bitPattern: test.oldSlot))) }
            hash.combine(test.operation, test.comparator, isNegated: test.isNegated, hasNull: test.hasNull)
        }
        for term in terms { term.combine(into: &hash) }
        hash.combine(asker.map { UInt64($0) } ?? .max)
    }
}

extension PredicateNode {
    /// Hash that is the same for equal nodes, in every process.
    var structuralHash: UInt64 {
        var hash = KeyHash(seed: 0)
        combine(into: &hash)
        return hash.value
    }

    private func combine(into hash: inout KeyHash) {
        switch self {
        case .constant(let truth): hash.combine(0 << 8 | UInt64(truth.rawValue))
        case .test(let test): test.combine(into: &hash)
        case .term(let term): term.combine(into: &hash)
        case .all: hash.combine(1)
        case .any: hash.combine(2)
        case .not: hash.combine(3)
        case .isTrue: hash.combine(4)
        case .isFalse: hash.combine(5)
        case .isUnknown: hash.combine(6)
        case .choice: hash.combine(7)
        case .coalesce: hash.combine(8)
        }
        let parts = parts
        hash.combine(UInt64(parts.count))
        for part in parts { part.combine(into: &hash) }
    }
}

extension PredicateTest {
    fileprivate func combine(into hash: inout KeyHash) {
        hash.combine(UInt64(slot))
        if isRelative { hash.combine(1 << 40) }
        if let oldSlot { hash.combine(UInt64(oldSlot)) }
        hash.combine(operation, comparator, isNegated: isNegated, hasNull: hasNull)
        for constant in constants { hash.combine(constant) }
        for label in labels { hash.combine(label) }
    }
}

extension Term {
    /// Adds the term to the hash. It omits the operations of functions, so terms that differ only in them have equal
    /// hashes.
    fileprivate func combine(into hash: inout KeyHash) {
        switch self {
        case .constant(let text, let type):
            hash.combine(UInt64(type.oid))
            hash.combine(text ?? [])
        case .column(let slot, _): hash.combine(1 << 32 | UInt64(slot))
        case .claims: hash.combine(2)
        case .role: hash.combine(3)
        case .apply(let function, _): hash.combine(4 << 32 | UInt64(function.result.oid))
        case .all: hash.combine(5)
        case .any: hash.combine(6)
        case .not: hash.combine(7)
        case .isNull: hash.combine(8)
        case .isTrue: hash.combine(9)
        case .isFalse: hash.combine(10)
        case .isDistinct: hash.combine(11)
        case .choice: hash.combine(12)
        case .coalesce: hash.combine(13)
        case .nullIf: hash.combine(14)
        case .anyElement: hash.combine(15)
        case .allElements: hash.combine(16)
        case .array(_, let type): hash.combine(17 << 32 | UInt64(type.oid))
        case .element: hash.combine(18)
        case .member(let membership, _): hash.combine(19 << 32 | UInt64(membership.table))
        case .ofClaims(_, let asked): hash.combine(Array(asked.sql.utf8))
        case .undecided: hash.combine(20)
        }
        let parts = parts
        hash.combine(UInt64(parts.count))
        for part in parts { part.combine(into: &hash) }
    }
}

extension KeyHash {
    fileprivate mutating func combine(_ bytes: [UInt8]) {
        // SAFETY: any byte is a valid UInt8, and the span lives for the call.
        combine(unsafe bytes.span.bytes)
    }

    fileprivate mutating func combine(
        _ operation: Predicate.Test.Operation, _ comparator: Comparator, isNegated: Bool, hasNull: Bool
    ) {
        let flags: UInt64 = (isNegated ? 1 : 0) | (hasNull ? 2 : 0) | (comparator.isArray ? 4 : 0)
        combine(UInt64(operation.rawValue) << 16 | UInt64(comparator.kind.rawValue) << 8 | flags)
    }
}
