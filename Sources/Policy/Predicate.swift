import Bytes

/// A filter ready to be held against rows: typed, with canonical constants, evaluated on a row where it lies.
///
/// In: a row image. Out: a verdict, without taking memory.
public struct Predicate: Sendable, Hashable {
    /// The columns that decide, in ascending order.
    public let slots: [Int]
    public let access: Access
    /// Whoever has one of the keys of `access` matches without a further look.
    public let isDecidedByAccess: Bool
    /// What to ask of PostgreSQL where the verdict is `.ask`; nil where it never is.
    public let question: Question?
    /// Whose policy it is, where the policy may have to be asked of PostgreSQL: shared by nobody else.
    public let asker: UInt32?

    /// Where one of a filter's columns is absent the answer is no, whatever the others say. Of a policy's columns
    /// nothing is said here: what is absent has to be asked.
    let filterSlots: [Int]
    let program: [Node]
    let tests: [Test]
    let constants: [Constant]
    let pool: [UInt8]
    /// What the tests cannot say.
    let terms: [Term]
    let maximumWork: Int

    /// Holds for every row: what a subscription without a filter asks.
    public static let always = Predicate(constant: true)
    /// Holds for none.
    public static let never = Predicate(constant: false)

    /// It holds for every row.
    public var isAlways: Bool { slots.isEmpty && access == .always }

    private init(constant: Bool) {
        slots = []
        access = constant ? .always : .never
        isDecidedByAccess = true
        question = nil
        asker = nil
        filterSlots = []
        program = [Node(kind: constant ? .all : .any, test: 0, end: 1)]
        tests = []
        constants = []
        pool = []
        terms = []
        maximumWork = 0
    }

    /// `canonical` holds an answer for each of the check's literals, in their order.
    public init(_ check: FilterCheck, canonical: [String]) throws(FilterRefusal) {
        precondition(canonical.count == check.literals.count, "each literal has its canonical form")
        let tree = try ResolvedNode(check.root, check, canonical)
        var builder = ProgramBuilder(check)
        builder.add(tree)
        slots = Set(builder.tests.map { Int($0.slot) }).sorted()
        filterSlots = slots
        asker = nil
        terms = []
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
            // Of policies.
            case isTrue, isFalse, isUnknown
            /// Conditions, each with its value behind it, and what holds otherwise.
            case choice
            /// The first that is not NULL.
            case coalesce
            case term
            /// Says its own verdict.
            case constant
        }

        var kind: Kind
        /// The number of the test or term, or the verdict itself.
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
            /// Whether the constant equals an element of the array.
            case hasElement
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
        for slot in filterSlots where row.kind(slot) == .absent { return .no }
        // SAFETY: any byte is a valid UInt8, and the spans live for the call.
        return evaluate(0, row, Constants(constants.span, unsafe pool.span.bytes))
    }

    private func evaluate(_ at: Int, _ row: borrowing RowImage, _ constants: borrowing Constants) -> Verdict {
        let node = program[at]
        switch node.kind {
        case .test: return verdict(of: tests[Int(node.test)], row, constants)
        case .not: return evaluate(at + 1, row, constants).negated
        case .all, .any: return group(node, at, row, constants)
        case .isTrue, .isFalse, .isUnknown: return evaluate(at + 1, row, constants).asked(node.kind)
        case .choice: return choice(node, at, row, constants)
        case .coalesce: return coalesce(node, at, row, constants)
        case .term: return TermEvaluation.truth(terms[Int(node.test)], row, maximumWork: maximumWork)
        case .constant: return Verdict(rawValue: UInt8(truncatingIfNeeded: node.test)) ?? .ask
        }
    }

    /// CASE: what decides is never reordered, so an error in a condition that is reached is an error.
    private func choice(
        _ node: Node, _ start: Int, _ row: borrowing RowImage, _ constants: borrowing Constants
    ) -> Verdict {
        var at = start + 1
        while Int(program[at].end) < node.end {
            let value = Int(program[at].end)
            switch evaluate(at, row, constants) {
            case .yes: return evaluate(value, row, constants)
            case .no, .unknown: at = Int(program[value].end)
            case .ask: return .ask
            case .failed: return .failed
            }
        }
        return evaluate(at, row, constants)
    }

    private func coalesce(
        _ node: Node, _ start: Int, _ row: borrowing RowImage, _ constants: borrowing Constants
    ) -> Verdict {
        var at = start + 1
        while at < node.end {
            let verdict = evaluate(at, row, constants)
            if verdict != .unknown { return verdict }
            at = Int(program[at].end)
        }
        return .unknown
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
            if verdict != result { result = result.joined(verdict) }
            at = Int(program[at].end)
        }
        return result
    }

    private func verdict(of test: Test, _ row: borrowing RowImage, _ constants: borrowing Constants) -> Verdict {
        let verdict: Verdict
        switch row.kind(Int(test.slot)) {
        case .text: verdict = onValue(test, row, constants)
        case .null: verdict = onNull(test)
        case .absent: return .ask
        }
        return test.isNegated ? verdict.negated : verdict
    }

    private func onNull(_ test: Test) -> Verdict {
        switch test.operation {
        case .isNull, .isDistinct, .askWhetherDistinct: .yes
        case .isTrue, .isFalse: .no
        case .equal, .less, .lessOrEqual, .greater, .greaterOrEqual, .contains, .isContained, .overlaps,
            .hasElement, .like, .likeFolded, .likeFoldedASCII, .askOfValue:
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
        case .hasElement: return ArrayText.has(text, constants[test.firstConstant], by: test.comparator)
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
        if let form = test.comparator.keyForm {
            return Self.isFound(form.canonical(text), test, constants) ? .yes : result
        }
        for index in test.firstConstant..<test.firstConstant + test.constantCount {
            switch test.comparator.equal(text, constants[index]) {
            case true?: return .yes
            case false?: break
            case nil: result = .ask
            }
        }
        return result
    }

    /// Canonical constants stand in the order of their bytes.
    private static func isFound(_ text: RawSpan, _ test: Test, _ constants: borrowing Constants) -> Bool {
        var low = test.firstConstant
        var high = low + test.constantCount
        while low < high {
            let middle = low + (high - low) / 2
            let order = ByteOrder.compare(text, constants[middle])
            if order == 0 { return true }
            if order < 0 { high = middle } else { low = middle + 1 }
        }
        return false
    }
}

extension Verdict {
    /// IS TRUE, IS FALSE, IS UNKNOWN.
    fileprivate func asked(_ kind: Predicate.Node.Kind) -> Verdict {
        switch self {
        case .ask, .failed: self
        case .yes: kind == .isTrue ? .yes : .no
        case .no: kind == .isFalse ? .yes : .no
        case .unknown: kind == .isUnknown ? .yes : .no
        }
    }
}
