import Bytes

/// A filter ready to be held against rows: typed, with canonical constants, evaluated on a row where it lies.
///
/// In: a row image. Out: a verdict, without taking memory.
public struct Predicate: Sendable, Hashable {
    /// The columns that decide, in ascending order. Where one of them is absent the answer is no, whatever the others
    /// say.
    public let slots: [Int]
    public let access: Access
    /// Whoever has one of the keys of `access` matches without a further look.
    public let isDecidedByAccess: Bool
    /// What to ask of PostgreSQL where the verdict is `.ask`; nil where it never is.
    public let question: Question?

    let program: [Node]
    let tests: [Test]
    let constants: [Constant]
    let pool: [UInt8]
    let maximumWork: Int

    /// Holds for every row: what a subscription without a filter asks.
    public static let always = Predicate(constant: true)
    /// Holds for none.
    public static let never = Predicate(constant: false)

    private init(constant: Bool) {
        slots = []
        access = constant ? .always : .never
        isDecidedByAccess = true
        question = nil
        program = [Node(kind: constant ? .all : .any, test: 0, end: 1)]
        tests = []
        constants = []
        pool = []
        maximumWork = 0
    }

    /// `canonical` holds an answer for each of the check's literals, in their order.
    public init(_ check: FilterCheck, canonical: [String]) throws(FilterRefusal) {
        precondition(canonical.count == check.literals.count, "each literal has its canonical form")
        let tree = try ResolvedNode(check.root, check, canonical)
        var builder = ProgramBuilder(check)
        builder.add(tree)
        slots = Set(builder.tests.map { Int($0.slot) }).sorted()
        program = builder.program
        tests = builder.tests
        constants = builder.constants
        pool = builder.pool
        maximumWork = check.settings.maximumWork
        let reach = Reach(tree, check)
        access = reach.access
        isDecidedByAccess = reach.isExact && slots.count == 1
        question =
            tests.contains { $0.mayAsk }
            ? QuestionWriter.question(tree, columns: check.columns, slots: slots) : nil
    }

    /// The program in prefix order; a group's parts stand between it and its end.
    struct Node: Sendable, Hashable {
        enum Kind: UInt8, Sendable {
            case test, all, any, not
        }

        var kind: Kind
        var test: Int32
        var end: Int32
    }

    struct Test: Sendable, Hashable {
        enum Operation: UInt8, Sendable {
            case equal, less, lessOrEqual, greater, greaterOrEqual
            case isNull, isTrue, isFalse
            /// Never NULL.
            case isDistinct
            case isIn
            case contains, isContained, overlaps
            case like
            /// ILIKE under C, where only the letters of ASCII have two cases.
            case likeFolded
            /// ILIKE where ASCII is folded plainly: other characters are PostgreSQL's.
            case likeFoldedASCII
            case ask
            /// A built-in operator of PostgreSQL's, which of NULL makes NULL.
            case askOfValue
            /// NULL is distinct from every value.
            case askWhetherDistinct
        }

        var slot: Int32
        var operation: Operation
        var isNegated: Bool
        var mayAsk: Bool
        /// `in` a list with a NULL: no match is unknown.
        var hasNull: Bool
        var comparator: Comparator
        var firstConstant: Int32
        var constantCount: Int32
    }

    struct Constant: Sendable, Hashable {
        var start: Int32
        var length: Int32
    }
}

// MARK: The verdict

extension Predicate {
    public func verdict(on row: borrowing RowImage) -> Verdict {
        for slot in slots where row.kind(slot) == .absent { return .no }
        // SAFETY: any byte is a valid UInt8, and the spans live for the call.
        return evaluate(0, row, Constants(constants.span, unsafe pool.span.bytes))
    }

    private func evaluate(_ at: Int, _ row: borrowing RowImage, _ constants: borrowing Constants) -> Verdict {
        let node = program[at]
        switch node.kind {
        case .test: return verdict(of: tests[Int(node.test)], row, constants)
        case .not: return evaluate(at + 1, row, constants).negated
        case .all, .any: return group(node, at, row, constants)
        }
    }

    /// SQL's AND and OR. What is not known yet is asked only if nothing else decides.
    private func group(
        _ node: Node, _ start: Int, _ row: borrowing RowImage, _ constants: borrowing Constants
    ) -> Verdict {
        let decides: Verdict = node.kind == .all ? .no : .yes
        var result = decides.negated
        var at = start + 1
        while at < node.end {
            let verdict = evaluate(at, row, constants)
            if verdict == decides { return decides }
            if verdict == .ask || verdict == .unknown && result != .ask { result = verdict }
            at = Int(program[at].end)
        }
        return result
    }

    private func verdict(of test: Test, _ row: borrowing RowImage, _ constants: borrowing Constants) -> Verdict {
        let verdict = row.kind(Int(test.slot)) == .null ? onNull(test) : onValue(test, row, constants)
        return test.isNegated ? verdict.negated : verdict
    }

    private func onNull(_ test: Test) -> Verdict {
        switch test.operation {
        case .isNull, .isDistinct, .askWhetherDistinct: .yes
        case .isTrue, .isFalse: .no
        case .equal, .less, .lessOrEqual, .greater, .greaterOrEqual, .contains, .isContained, .overlaps, .like,
            .likeFolded, .likeFoldedASCII, .askOfValue:
            .unknown
        case .ask: .ask
        // Of no elements there is none that could be equal.
        case .isIn: test.constantCount == 0 && !test.hasNull ? .no : .unknown
        }
    }

    private func onValue(_ test: Test, _ row: borrowing RowImage, _ constants: borrowing Constants) -> Verdict {
        let text = row.text(Int(test.slot))
        switch test.operation {
        case .isNull: return .no
        case .isTrue: return text.equals("t") ? .yes : .no
        case .isFalse: return text.equals("f") ? .yes : .no
        case .ask, .askOfValue, .askWhetherDistinct: return .ask
        case .isIn: return isIn(test, text, constants)
        case .equal: return Verdict(test.comparator.equal(text, constants[test.firstConstant]))
        case .isDistinct: return Verdict(test.comparator.equal(text, constants[test.firstConstant])).negated
        case .less, .lessOrEqual, .greater, .greaterOrEqual:
            guard let order = test.comparator.order(text, constants[test.firstConstant], constants) else { return .ask }
            return Self.holds(test.operation, order) ? .yes : .no
        case .contains, .isContained, .overlaps, .like, .likeFolded, .likeFoldedASCII:
            return search(test, text, constants[test.firstConstant])
        }
    }

    private static func holds(_ operation: Test.Operation, _ order: Int) -> Bool {
        switch operation {
        case .less: order < 0
        case .lessOrEqual: order <= 0
        case .greater: order > 0
        default: order >= 0
        }
    }

    /// What takes time by the product of both lengths.
    private func search(_ test: Test, _ text: RawSpan, _ constant: RawSpan) -> Verdict {
        let (work, overflow) = text.byteCount.multipliedReportingOverflow(by: constant.byteCount)
        guard !overflow, work <= maximumWork else { return .ask }
        switch test.operation {
        case .contains: return Verdict(Self.contains(text, constant, test.comparator))
        case .isContained: return Verdict(Self.contains(constant, text, test.comparator))
        case .overlaps: return Verdict(ArrayText.overlaps(text, constant, by: test.comparator))
        case .likeFoldedASCII where !LikePattern.isASCII(text): return .ask
        default: return LikePattern.matches(text, constant, foldingCase: test.operation != .like) ? .yes : .no
        }
    }

    private static func contains(_ whole: RawSpan, _ part: RawSpan, _ comparator: Comparator) -> Bool? {
        comparator.isArray ? ArrayText.contains(whole, part, by: comparator) : JSONBText.contains(whole, part)
    }

    private func isIn(_ test: Test, _ text: RawSpan, _ constants: borrowing Constants) -> Verdict {
        var result: Verdict = test.hasNull ? .unknown : .no
        for index in test.firstConstant..<test.firstConstant + test.constantCount {
            switch test.comparator.equal(text, constants[index]) {
            case true?: return .yes
            case false?: break
            case nil: result = .ask
            }
        }
        return result
    }
}

extension Verdict {
    init(_ answer: Bool?) {
        self = answer.map { $0 ? .yes : .no } ?? .ask
    }

    /// SQL's NOT.
    var negated: Verdict {
        switch self {
        case .no: .yes
        case .yes: .no
        case .unknown, .ask, .failed: self
        }
    }
}
