import Bytes

/// Filter, policy or both, ready to be evaluated on rows. The types of columns are known and constants are canonical.
///
/// Evaluation reads a row image in place, allocates no memory, and returns a verdict.
public struct Predicate: Sendable, Hashable {
    /// Slots of the columns that the predicate reads, in ascending order.
    public let slots: [Int]
    public let access: Access
    /// True if every row with one of the keys in `access` matches, so that the predicate need not be evaluated.
    public let isDecidedByAccess: Bool
    /// Question for PostgreSQL if the filter's verdict is `.ask`. Nil if the filter never has this verdict.
    public let question: Question?
    /// Number of the holder (role and claims), if PostgreSQL may have to be asked about the policy. Such a predicate is
    /// not shared with other holders.
    public let asker: UInt32?

    /// Slot of the first column of the row before the change, if the filter reads that row. Its columns have the slots
    /// after those of the row. Nil if the filter reads only the row.
    public let oldRowStart: Int?

    /// Index of the filter's first node in the predicate's nodes; nil if the predicate is only a policy. Constant
    /// predicates have 0.
    let filterStart: Int?
    /// Index of the policy's first node, if the filter reads the row before the change. The policy then also decides
    /// whether the subscriber may know that row.
    let policyStart: Int?
    let program: [Node]
    let tests: [Test]
    let constants: [Constant]
    let pool: [UInt8]
    /// Conditions that no test can express. They are evaluated as trees.
    let terms: [Term]
    let maximumWork: Int
    /// Estimated work of evaluating the filter.
    public let effort: Effort

    /// Predicate that is true for every row, as for a subscription without a filter.
    public static let always = Predicate(constant: true)
    /// Predicate that is true for no row.
    public static let never = Predicate(constant: false)

    /// True if the predicate is true for every row.
    public var isAlways: Bool { slots.isEmpty && access == .always }

    /// True if the filter reads the row before the change (`old.column=…`, `changed=column`). The predicate is then
    /// about events, not about a set of rows.
    public var readsOldRow: Bool { oldRowStart != nil }

    /// True if the filter compares a column with the time of the commit (`created_at=gt.now-10min`). Rows then begin and
    /// cease to match as time passes.
    public var readsClock: Bool { tests.contains { $0.isRelative } }

    /// Slots of the columns that the predicate reads of the row before the change.
    public var oldColumns: [Int] {
        guard let oldRowStart else { return [] }
        return slots.filter { $0 >= oldRowStart }.map { $0 - oldRowStart }
    }

    /// Slots of the columns that the predicate reads, of the row or of the row before the change.
    public var columns: [Int] {
        guard let oldRowStart else { return slots }
        return slots.filter { $0 < oldRowStart }
    }

    private init(constant: Bool) {
        slots = []
        access = constant ? .always : .never
        isDecidedByAccess = true
        question = nil
        asker = nil
        oldRowStart = nil
        filterStart = 0
        policyStart = nil
        program = [Node(kind: constant ? .all : .any, test: 0, end: 1)]
        tests = []
        constants = []
        pool = []
        terms = []
        maximumWork = 0
        effort = .none
    }

    /// Creates the predicate of a filter. `canonical` has the canonical text of each of the check's literals, in their
    /// order.
    public init(_ check: FilterCheck, canonical: [String]) throws(FilterRefusal) {
        let node = try FilterLowering.node(check, canonical)
        let isOfEvents = !check.oldSlots.isEmpty
        let question =
            node.alwaysTells || isOfEvents || check.readsClock ? nil : QuestionWriter.question(check, canonical)
        self.init(
            node, .filter(question, oldRowStart: isOfEvents ? check.columns.count : nil),
            maximumKeys: check.settings.maximumKeys, maximumWork: check.settings.maximumWork)
    }

    /// Creates the predicate of a policy. If PostgreSQL may have to be asked, only the holder with number `asker` may
    /// use it.
    init(_ node: PredicateNode, asker: UInt32?, settings: FilterCheck.Settings) {
        var node = node
        // A policy that fails or is NULL for every row shows no row.
        if case .constant(let truth) = node, !truth.may(be: .yes) { node = .constant(.no) }
        self.init(
            node, .policy(asker: node.mayAsk ? asker : nil), maximumKeys: settings.maximumPolicyKeys,
            maximumWork: settings.maximumWork)
    }

    private enum Source {
        case filter(Question?, oldRowStart: Int?)
        case policy(asker: UInt32?)
    }

    private init(_ node: PredicateNode, _ source: Source, maximumKeys: Int, maximumWork: Int) {
        if node == .constant(.yes) || node == .constant(.no) {
            self = node == .constant(.yes) ? .always : .never
            return
        }
        let builder = ProgramBuilder(node)
        program = builder.program
        tests = builder.tests
        constants = builder.constants
        pool = builder.pool
        terms = builder.terms
        let reach = Reach(node, maximumKeys: maximumKeys)
        access = reach.access
        self.maximumWork = maximumWork
        switch source {
        case .filter(let question, let oldRowStart):
            self.question = question
            self.oldRowStart = oldRowStart
            // PostgreSQL receives the filter as the client wrote it, with columns that the simplified predicate may not
            // read.
            slots = question?.slots ?? node.slots.sorted()
            // A key of the old row does not decide: a policy may hide that row.
            isDecidedByAccess = reach.isExact && slots.count == 1 && oldRowStart == nil
            filterStart = 0
            asker = nil
            effort = Effort(builder.tests, builder.constants)
        case .policy(let asker):
            question = nil
            oldRowStart = nil
            slots = node.slots.sorted()
            isDecidedByAccess = reach.isExact
            filterStart = nil
            self.asker = asker
            effort = .none
        }
        policyStart = nil
        checkInvariants()
    }

    /// Node of a predicate. The nodes are in prefix order: the parts of a group are between the group's node and its
    /// end.
    struct Node: Sendable, Hashable {
        enum Kind: UInt8, Sendable {
            case test, all, any, not
            case isTrue, isFalse, isUnknown
            /// CASE: conditions, each followed by its value, and finally the ELSE value.
            case choice
            /// COALESCE: the first part that is not NULL.
            case coalesce
            case term
            /// A constant result.
            case constant
        }

        var kind: Kind
        /// Index of the test or term; for a constant, the raw value of its `Truth`.
        var test: Int32
        /// Index of the node after this node and its parts.
        var end: Int32
    }

    struct Test: Sendable, Hashable {
        enum Operation: UInt8, Sendable {
            case equal, less, lessOrEqual, greater, greaterOrEqual
            case isNull, isTrue, isFalse
            /// IS DISTINCT FROM, whose result is never NULL.
            case isDistinct
            case isIn
            case contains, isContained, overlaps
            /// True if the constant equals an element of the column's array.
            case hasElement
            case like
            /// ILIKE under the collation C, in which only ASCII letters have two cases.
            case likeFolded
            /// ILIKE under a collation that folds ASCII letters like C. The hub asks PostgreSQL about texts with other
            /// characters.
            case likeFoldedASCII
            /// Question for PostgreSQL that must be asked even if the column is NULL.
            case ask
            /// Question for PostgreSQL about a built-in operator that returns NULL for NULL.
            case askOfValue
            /// Question for PostgreSQL about IS DISTINCT FROM. NULL is distinct from every value.
            case askWhetherDistinct
            /// True if the column's value differs from the one before the change. NULL equals NULL.
            case changed
        }

        var slot: Int32
        /// Slot of the same column in the row before the change; negative if the test does not read that row.
        var oldSlot: Int32
        var operation: Operation
        var isNegated: Bool
        /// True if the constant is the number of microseconds from the commit of the change to the time that is meant.
        var isRelative: Bool
        /// True if the list of an `in` contains NULL. The result is then unknown if no element matches.
        var hasNull: Bool
        var comparator: Comparator
        var firstConstant: Int32
        var constantCount: Int32

        var readsOldRow: Bool { oldSlot >= 0 }
        /// Slot of the value that is compared with the constants.
        var testedSlot: Int { Int(oldSlot >= 0 ? oldSlot : slot) }
    }

    struct Constant: Sendable, Hashable {
        var start: Int32
        var length: Int32
    }
}

// MARK: The verdict

extension Predicate {
    /// Returns the predicate's verdict on the row.
    public func verdict(on row: borrowing RowImage) -> Verdict {
        let verdict = Verdict(readsOldRow ? truthOfEvent(on: row) : truth(on: row))
        assert(access != .never || verdict != .yes, "a match of what holds for no row")
        return verdict
    }

    /// True if the predicate includes a subscription's filter or is constant. False if it is only a policy.
    public var hasFilter: Bool { filterStart != nil }

    /// Returns the verdict of the filter without the policy, because PostgreSQL is asked about each separately.
    public func filterVerdict(on row: borrowing RowImage) -> Verdict {
        guard let filterStart else {
            assert(question == nil, "a filter that is nowhere")
            return .yes
        }
        return Verdict(readsOldRow ? filterTruthOfEvent(on: row) : truth(from: filterStart, on: row))
    }

    func truth(from node: Int = 0, on row: borrowing RowImage) -> Truth {
        // SAFETY: any byte is a valid UInt8, and the spans live for the call.
        evaluate(node, row, Constants(constants.span, unsafe pool.span.bytes))
    }

    private func evaluate(_ at: Int, _ row: borrowing RowImage, _ constants: borrowing Constants) -> Truth {
        let node = program[at]
        switch node.kind {
        case .test: return truth(of: tests[Int(node.test)], row, constants)
        case .not: return evaluate(at + 1, row, constants).negated
        case .all, .any: return group(node, at, row, constants)
        case .isTrue, .isFalse, .isUnknown: return evaluate(at + 1, row, constants).asked(node.kind)
        case .choice: return choice(node, at, row, constants)
        case .coalesce: return coalesce(node, at, row, constants)
        case .term: return TermEvaluation.truth(terms[Int(node.test)], row, maximumWork: maximumWork)
        case .constant:
            guard let truth = Truth(rawValue: UInt8(truncatingIfNeeded: node.test)) else {
                preconditionFailure("a constant that is no truth")
            }
            return truth
        }
    }

    /// Evaluates CASE. The order of conditions is kept, because an error in a condition that is reached is an error of
    /// the whole.
    private func choice(
        _ node: Node, _ start: Int, _ row: borrowing RowImage, _ constants: borrowing Constants
    ) -> Truth {
        var at = start + 1
        // Possible results, if one of the undecided conditions so far should be true.
        var perhaps: Truth?
        while Int(program[at].end) < node.end {
            let value = Int(program[at].end)
            let condition = evaluate(at, row, constants)
            switch condition {
            case .yes: return evaluate(value, row, constants).or(perhaps: perhaps)
            case .no, .unknown: break
            case .failed: return Truth.failed.or(perhaps: perhaps)
            case .ask, .notNo: perhaps = evaluate(value, row, constants).or(perhaps: .failed).or(perhaps: perhaps)
            case .notYes: perhaps = Truth.failed.or(perhaps: perhaps)
            }
            at = Int(program[value].end)
        }
        assert(program[at].end == node.end, "what holds otherwise stands last")
        return evaluate(at, row, constants).or(perhaps: perhaps)
    }

    private func coalesce(
        _ node: Node, _ start: Int, _ row: borrowing RowImage, _ constants: borrowing Constants
    ) -> Truth {
        var at = start + 1
        var perhaps: Truth?
        while at < node.end {
            let truth = evaluate(at, row, constants)
            guard truth.may(be: .unknown) else { return truth.or(perhaps: perhaps) }
            if let known = truth.without(.unknown) { perhaps = known.or(perhaps: perhaps) }
            at = Int(program[at].end)
        }
        assert(at == node.end, "parts of a group fill it")
        return Truth.unknown.or(perhaps: perhaps)
    }

    /// Evaluates AND or OR by SQL's three-valued logic.
    private func group(
        _ node: Node, _ start: Int, _ row: borrowing RowImage, _ constants: borrowing Constants
    ) -> Truth {
        let decides: Truth = node.kind == .all ? .no : .yes
        var result = decides.negated
        var at = start + 1
        while at < node.end {
            let truth = evaluate(at, row, constants)
            if truth == decides { return decides }
            if truth != result { result = result.joined(truth, inGroupThat: decides) }
            at = Int(program[at].end)
        }
        assert(at == node.end, "parts of a group fill it")
        assert(result != decides, "a group that was decided and went on")
        return result
    }

    private func truth(of test: Test, _ row: borrowing RowImage, _ constants: borrowing Constants) -> Truth {
        if test.readsOldRow, let known = truthOfEvent(test, row) { return known }
        let truth: Truth
        switch row.kind(test.testedSlot) {
        case .text: truth = onValue(test, row, constants)
        case .null: truth = onNull(test)
        // An absent value is unknown, which differs from NULL. No test can be decided on it.
        case .absent: return .ask
        }
        return test.isNegated ? truth.negated : truth
    }

    private func onNull(_ test: Test) -> Truth {
        assert(slots.contains(test.testedSlot), "a column that is not read")
        return switch test.operation {
        case .changed: preconditionFailure("a comparison of two rows on the value of one")
        case .isNull, .isDistinct, .askWhetherDistinct: .yes
        case .isTrue, .isFalse: .no
        case .equal, .less, .lessOrEqual, .greater, .greaterOrEqual, .contains, .isContained, .overlaps,
            .hasElement, .like, .likeFolded, .likeFoldedASCII, .askOfValue:
            .unknown
        case .ask: .ask
        // An empty list has no element that could equal the column, so the result is false even for NULL.
        case .isIn: test.constantCount == 0 && !test.hasNull ? .no : .unknown
        }
    }

    private func onValue(_ test: Test, _ row: borrowing RowImage, _ constants: borrowing Constants) -> Truth {
        let text = row.text(test.testedSlot)
        switch test.operation {
        case .changed: preconditionFailure("a comparison of two rows on the value of one")
        case .isNull: return .no
        case .isTrue: return text.equals("t") ? .yes : .no
        case .isFalse: return text.equals("f") ? .yes : .no
        case .ask, .askOfValue, .askWhetherDistinct: return .ask
        case .isIn: return isIn(test, text, constants)
        case .equal: return Truth(test.comparator.equal(text, constants[test.firstConstant]))
        case .isDistinct: return Truth(test.comparator.equal(text, constants[test.firstConstant])).negated
        case .less, .lessOrEqual, .greater, .greaterOrEqual:
            let order =
                test.isRelative
                ? RelativeTime.order(text, constants[test.firstConstant], test.comparator, row.committed)
                : test.comparator.order(text, constants[test.firstConstant], constants)
            guard let order else { return .ask }
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

    /// Evaluates the operators whose work grows with the product of both lengths.
    private func search(_ test: Test, _ text: RawSpan, _ constant: RawSpan) -> Truth {
        let (work, overflow) = text.byteCount.multipliedReportingOverflow(by: constant.byteCount)
        guard !overflow, work <= maximumWork else { return .ask }
        switch test.operation {
        case .contains: return Truth(Self.contains(text, constant, test.comparator))
        case .isContained: return Truth(Self.contains(constant, text, test.comparator))
        case .overlaps: return Truth(ArrayText.overlaps(text, constant, by: test.comparator))
        case .likeFoldedASCII where !LikePattern.isASCII(text): return .ask
        default: return LikePattern.matches(text, constant, foldingCase: test.operation != .like) ? .yes : .no
        }
    }

    private static func contains(_ whole: RawSpan, _ part: RawSpan, _ comparator: Comparator) -> Bool? {
        comparator.isArray ? ArrayText.contains(whole, part, by: comparator) : JSONBText.contains(whole, part)
    }

    private func isIn(_ test: Test, _ text: RawSpan, _ constants: borrowing Constants) -> Truth {
        var result: Truth = test.hasNull ? .unknown : .no
        if let form = test.comparator.keyForm {
            return Self.isFound(form.canonical(text), test, constants) ? .yes : result
        }
        for index in test.firstConstant..<test.firstConstant + test.constantCount {
            switch test.comparator.equal(text, constants[index]) {
            case true?: return .yes
            case false?: break
            case nil: result = result.or(.ask)
            }
        }
        return result
    }

    /// Searches the canonical constants, which are sorted by their bytes, by binary search.
    private static func isFound(_ text: RawSpan, _ test: Test, _ constants: borrowing Constants) -> Bool {
        assert(test.operation == .isIn && test.comparator.keyForm != nil, "constants that stand in no order")
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

extension Truth {
    fileprivate func asked(_ kind: Predicate.Node.Kind) -> Truth {
        switch kind {
        case .isTrue: isExactly(.yes)
        case .isFalse: isExactly(.no)
        default: isExactly(.unknown)
        }
    }
}
