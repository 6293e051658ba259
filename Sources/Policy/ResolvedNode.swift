import Bytes

/// A checked filter whose constants are all canonical.
indirect enum ResolvedNode: Sendable {
    case test(ResolvedTest)
    case all([ResolvedNode])
    case any([ResolvedNode])
    case not(ResolvedNode)

    init(_ node: CheckedNode, _ check: FilterCheck, _ canonical: [String]) throws(FilterRefusal) {
        switch node {
        case .test(let test): self = .test(try ResolvedTest(test, check, canonical))
        case .all(let parts): self = .all(try Self.nodes(parts, check, canonical))
        case .any(let parts): self = .any(try Self.nodes(parts, check, canonical))
        case .not(let part): self = .not(try ResolvedNode(part, check, canonical))
        }
    }

    private static func nodes(
        _ parts: [CheckedNode], _ check: FilterCheck, _ canonical: [String]
    ) throws(FilterRefusal) -> [ResolvedNode] {
        var nodes: [ResolvedNode] = []
        for part in parts { nodes.append(try ResolvedNode(part, check, canonical)) }
        return nodes
    }
}

struct ResolvedTest: Sendable {
    /// As PostgreSQL is given it.
    enum Value: Sendable {
        case word(TruthWord)
        case one(String)
        case list(String)
    }

    var slot: Int
    var comparison: FilterOperator
    var isNegated: Bool
    var value: Value
    /// The constants that are compared in process, nil for NULL; none of an operator that is always asked.
    var elements: [[UInt8]?]
    /// Whether the process can decide at all.
    var isAsked: Bool
    var comparator: Comparator

    init(_ test: CheckedTest, _ check: FilterCheck, _ canonical: [String]) throws(FilterRefusal) {
        slot = test.slot
        comparison = test.comparison
        isNegated = test.isNegated
        comparator = Comparator(check.columns[test.slot])
        isAsked = !Self.isDecidable(test.comparison, comparator, check.columns[test.slot].type)
        switch test.value {
        case .word(let word): (value, elements) = (.word(word), [])
        case .ready(let ready): (value, elements) = (Self.value(ready, test.comparison), ready)
        case .literal(let index):
            let text = canonical[index]
            value = test.comparison == .in ? .list(text) : .one(text)
            elements = [Array(text.utf8)]
            guard test.comparison == .in else { break }
            let list = ArrayText.elements(Array(text.utf8))
            isAsked = isAsked || list == nil
            elements = list ?? []
            try check.checkCount(elements.count)
        }
        if isAsked { elements = [] }
        if Self.isCompared(comparison), let form = comparator.keyForm {
            elements = elements.map { $0.map { Self.canonical($0, form) } }
        }
    }

    private static func value(_ ready: [[UInt8]?], _ comparison: FilterOperator) -> Value {
        if comparison != .in, let only = ready.first ?? nil { return .one(String(decoding: only, as: UTF8.self)) }
        return .list(ArrayLiteral.text(ready))
    }

    /// Constants are values of the column's type, and not patterns.
    private static func isCompared(_ comparison: FilterOperator) -> Bool {
        comparison != .like && comparison != .ilike
    }

    private static func canonical(_ bytes: [UInt8], _ form: KeyForm) -> [UInt8] {
        // SAFETY: any byte is a valid UInt8, and the span lives for the call.
        form.canonical(unsafe bytes.span.bytes).copied()
    }

    private static func isDecidable(
        _ comparison: FilterOperator, _ comparator: Comparator, _ type: TypeFacts
    ) -> Bool {
        switch comparison {
        case .is: true
        case .eq, .neq, .isdistinct: comparator.kind != .opaque
        // A list for an array column is an array of more dimensions, whose elements are not arrays.
        case .in: comparator.kind != .opaque && !comparator.isArray
        case .lt, .lte, .gt, .gte: comparator.isOrdered
        case .like, .ilike: comparator.takesPatterns(type)
        case .cs, .cd: comparator.hasContainment
        case .ov: comparator.isArray
        case .match, .imatch, .sl, .sr, .nxr, .nxl, .adj: false
        }
    }
}

/// Lays a tree out as a predicate's flat program.
struct ProgramBuilder {
    private(set) var program: [Predicate.Node] = []
    private(set) var tests: [Predicate.Test] = []
    private(set) var constants: [Predicate.Constant] = []
    private(set) var pool: [UInt8] = []
    private let check: FilterCheck

    init(_ check: FilterCheck) { self.check = check }

    mutating func add(_ node: ResolvedNode) {
        let at = program.count
        program.append(Predicate.Node(kind: .test, test: Int32(tests.count), end: 0))
        switch node {
        case .test(let test): tests.append(self.test(test))
        case .all(let parts): group(.all, parts, at)
        case .any(let parts): group(.any, parts, at)
        case .not(let part): group(.not, [part], at)
        }
        program[at].end = Int32(program.count)
    }

    private mutating func group(_ kind: Predicate.Node.Kind, _ parts: [ResolvedNode], _ at: Int) {
        program[at].kind = kind
        for part in parts { add(part) }
    }

    private mutating func test(_ test: ResolvedTest) -> Predicate.Test {
        let operation = operation(test)
        var known = test.elements.compactMap { $0 }
        // In the order in which one is found among many.
        if operation == .isIn, test.comparator.keyForm != nil {
            known = Array(Set(known)).sorted { $0.lexicographicallyPrecedes($1) }
        }
        let first = add(known)
        var comparator = test.comparator
        if comparator.kind == .enumeration, operation.isOrder { addLabels(test.slot, &comparator) }
        return Predicate.Test(
            slot: Int32(test.slot), operation: operation, isNegated: test.isNegated != (test.comparison == .neq),
            mayAsk: !Self.neverAsks(operation, comparator), hasNull: test.elements.contains { $0 == nil },
            comparator: comparator,
            firstConstant: first, constantCount: Int32(known.count))
    }

    private mutating func add(_ values: [[UInt8]]) -> Int32 {
        let first = Int32(constants.count)
        for bytes in values {
            constants.append(Predicate.Constant(start: Int32(pool.count), length: Int32(bytes.count)))
            pool += bytes
        }
        return first
    }

    private mutating func addLabels(_ slot: Int, _ comparator: inout Comparator) {
        var type = check.columns[slot].type
        if case .array(let element) = type.shape { type = element }
        guard case .enumeration(let labels) = type.shape else { return }
        comparator.firstLabel = add(labels.map { Array($0.utf8) })
        comparator.labelCount = Int32(labels.count)
    }

    /// Whatever the row holds: even a text that no value of the type has.
    private static func neverAsks(_ operation: Predicate.Test.Operation, _ comparator: Comparator) -> Bool {
        switch operation {
        case .isNull, .isTrue, .isFalse: true
        case .equal, .isDistinct, .isIn: comparator.keyForm != nil
        default: false
        }
    }

    private func operation(_ test: ResolvedTest) -> Predicate.Test.Operation {
        if test.isAsked { return asking(test) }
        if case .word(let word) = test.value {
            switch word {
            case .null, .unknown: return .isNull
            case .true: return .isTrue
            case .false: return .isFalse
            }
        }
        switch test.comparison {
        case .eq, .neq: return .equal
        case .lt: return .less
        case .lte: return .lessOrEqual
        case .gt: return .greater
        case .gte: return .greaterOrEqual
        case .in: return .isIn
        case .isdistinct: return .isDistinct
        case .cs: return .contains
        case .cd: return .isContained
        case .ov: return .overlaps
        case .like: return .like
        case .ilike: return foldedLike(test)
        case .is, .match, .imatch, .sl, .sr, .nxr, .nxl, .adj: return .askOfValue
        }
    }

    private func asking(_ test: ResolvedTest) -> Predicate.Test.Operation {
        if test.comparison == .isdistinct { return .askWhetherDistinct }
        // Of an empty list the answer is no, and an operator of the user's own may say what it likes.
        let isBuiltIn = check.columns[test.slot].type.oid < TypeOID.firstOfUsers
        return isBuiltIn && test.comparison != .in ? .askOfValue : .ask
    }

    private func foldedLike(_ test: ResolvedTest) -> Predicate.Test.Operation {
        switch check.columns[test.slot].collation {
        case .bytewise: return .likeFolded
        case .deterministic(nil) where check.settings.foldsASCIIPlainly: break
        case .none, .deterministic, .nondeterministic: return .askOfValue
        }
        let isASCII = test.elements.allSatisfy { $0?.allSatisfy { $0 < 0x80 } ?? true }
        return isASCII ? .likeFoldedASCII : .askOfValue
    }
}

extension Predicate.Test.Operation {
    var isOrder: Bool {
        switch self {
        case .less, .lessOrEqual, .greater, .greaterOrEqual: true
        default: false
        }
    }
}
