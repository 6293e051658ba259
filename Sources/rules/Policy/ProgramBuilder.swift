/// Builder that turns a tree of predicate nodes into a flat program.
struct ProgramBuilder {
    private(set) var program: [Predicate.Node] = []
    private(set) var tests: [Predicate.Test] = []
    private(set) var constants: [Predicate.Constant] = []
    private(set) var pool: [UInt8] = []
    private(set) var terms: [Term] = []

    init(_ node: PredicateNode) {
        add(node)
        precondition(program.first.map { Int($0.end) } == program.count, "a program is one node with its parts")
    }

    private mutating func add(_ node: PredicateNode) {
        let at = program.count
        program.append(Predicate.Node(kind: .constant, test: 0, end: 0))
        switch node {
        case .constant(let truth): program[at].test = Int32(truth.rawValue)
        case .test(let test):
            program[at] = Predicate.Node(kind: .test, test: Int32(tests.count), end: 0)
            add(test)
        case .term(let term):
            program[at] = Predicate.Node(kind: .term, test: Int32(terms.count), end: 0)
            terms.append(term)
        case .all: program[at].kind = .all
        case .any: program[at].kind = .any
        case .not: program[at].kind = .not
        case .isTrue: program[at].kind = .isTrue
        case .isFalse: program[at].kind = .isFalse
        case .isUnknown: program[at].kind = .isUnknown
        case .choice: program[at].kind = .choice
        case .coalesce: program[at].kind = .coalesce
        }
        for part in node.parts { add(part) }
        program[at].end = Int32(program.count)
    }

    private mutating func add(_ test: PredicateTest) {
        precondition(test.slot >= 0, "a column before the first")
        assert(test.labels.isEmpty || test.comparator.kind == .enumeration, "labels of what has none")
        let first = add(test.constants)
        var comparator = test.comparator
        if !test.labels.isEmpty {
            comparator.firstLabel = add(test.labels)
            comparator.labelCount = Int32(test.labels.count)
        }
        tests.append(
            Predicate.Test(
                slot: Int32(test.slot), oldSlot: Int32(test.oldSlot ?? -1), operation: test.operation,
                isNegated: test.isNegated, isRelative: test.isRelative, hasNull: test.hasNull,
                comparator: comparator, firstConstant: first, constantCount: Int32(test.constants.count)))
    }

    private mutating func add(_ values: [[UInt8]]) -> Int32 {
        let first = Int32(constants.count)
        for bytes in values {
            constants.append(Predicate.Constant(start: Int32(pool.count), length: Int32(bytes.count)))
            pool += bytes
        }
        return first
    }
}
