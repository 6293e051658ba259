extension Predicate {
    /// Checks the assumptions of evaluation, before the predicate is used on any row. An index outside the program, or
    /// a constant that is not canonical, could cause a false match.
    func checkInvariants() {
        precondition(program.first.map { Int($0.end) } == program.count, "a program is one node with its parts")
        var next = 0
        checkNode(at: &next)
        precondition(next == program.count, "parts stand between their group and its end")
        for test in tests { check(test) }
        for constant in constants {
            precondition(
                constant.start >= 0 && constant.length >= 0 && Int(constant.start) + Int(constant.length) <= pool.count,
                "a constant outside of the pool")
        }
        checkSlots()
        checkAccess()
        if let filterStart {
            precondition(filterStart == 0 || filterStart == 1 && program[0].kind == .all, "a filter that is elsewhere")
        }
        precondition(policyStart == nil || oldRowStart != nil, "a policy that is looked for without an old row")
        if let policyStart {
            precondition(
                filterStart == 1 && Int(program[1].end) == policyStart && policyStart < program.count,
                "a policy that is elsewhere")
        }
    }

    /// Checks the node at index `at` with its parts, and moves `at` past them.
    private func checkNode(at: inout Int) {
        let node = program[at]
        precondition(node.end > at && Int(node.end) <= program.count, "a node that ends before it begins")
        at += 1
        var parts = 0
        while at < node.end {
            checkNode(at: &at)
            parts += 1
        }
        precondition(at == node.end, "a part that reaches out of its group")
        switch node.kind {
        case .test: precondition(parts == 0 && tests.indices.contains(Int(node.test)), "a test that is not there")
        case .term: precondition(parts == 0 && terms.indices.contains(Int(node.test)), "a term that is not there")
        case .constant:
            let truth = UInt8(exactly: node.test).flatMap { Truth(rawValue: $0) }
            precondition(parts == 0 && truth != nil, "a constant that is no truth")
        case .not, .isTrue, .isFalse, .isUnknown:
            precondition(parts == 1, "what has one part has another number of them")
        case .choice: precondition(parts % 2 == 1, "a condition without its value")
        case .coalesce: precondition(parts > 0, "the first of none")
        case .all, .any: break
        }
    }

    private func check(_ test: Test) {
        let range = test.firstConstant..<test.firstConstant + test.constantCount
        precondition(
            range.isEmpty || constants.indices.contains(Int(range.upperBound) - 1), "constants that are not there")
        let labels = test.comparator.firstLabel + test.comparator.labelCount
        precondition(test.comparator.labelCount == 0 || labels <= constants.count, "labels that are not there")
        precondition(test.operation == .isIn || !test.hasNull, "a NULL in what is no list")
        precondition(
            !test.isRelative || [.date, .timestamp].contains(test.comparator.kind) && !test.comparator.isArray,
            "a time for what is none")
        switch test.operation {
        case .isNull, .isTrue, .isFalse, .ask, .askOfValue, .askWhetherDistinct, .changed:
            precondition(range.isEmpty, "a constant that nothing is held against")
        case .equal, .less, .lessOrEqual, .greater, .greaterOrEqual, .isDistinct, .contains, .isContained, .overlaps,
            .hasElement, .like, .likeFolded, .likeFoldedASCII:
            precondition(range.count == 1, "one constant, and no other number of them")
        // Evaluation uses binary search, so the list must be sorted.
        case .isIn: precondition(test.comparator.keyForm == nil || isAscending(range), "a list out of order")
        }
    }

    private func isAscending(_ range: Range<Int32>) -> Bool {
        // SAFETY: any byte is a valid UInt8, and the spans live for the call.
        let constants = Constants(constants.span, unsafe pool.span.bytes)
        for index in range.dropFirst() where ByteOrder.compare(constants[index - 1], constants[index]) >= 0 {
            return false
        }
        return true
    }

    /// Checks that each used column is read. A column that is not read would seem to have the previous row's value.
    private func checkSlots() {
        precondition(slots == Set(slots).sorted(), "columns in ascending order, each once")
        precondition(slots.allSatisfy { $0 >= 0 }, "a column before the first")
        precondition(tests.allSatisfy { slots.contains(Int($0.slot)) }, "a test of a column that is not read")
        precondition(
            tests.allSatisfy { $0.operation != .changed || $0.readsOldRow }, "a comparison with a row that is not read")
        if let oldRowStart {
            precondition(
                tests.allSatisfy { !$0.readsOldRow || Int($0.oldSlot - $0.slot) == oldRowStart },
                "a test of another column than the one before the change")
            precondition(
                slots.allSatisfy { $0 < oldRowStart || slots.contains($0 - oldRowStart) },
                "a column that is read only of the row before the change")
        }
        precondition(
            tests.allSatisfy { !$0.readsOldRow || oldRowStart != nil && slots.contains($0.testedSlot) },
            "a test of a row that is not read")
        precondition(terms.allSatisfy { $0.slots.isSubset(of: slots) }, "a term over a column that is not read")
        precondition(question?.slots.allSatisfy(slots.contains) ?? true, "a question about a column that is not read")
    }

    private func checkAccess() {
        switch access {
        case .anyOf(let keys):
            precondition(!keys.isEmpty, "found by no key")
            precondition(keys.allSatisfy { slots.contains($0.slot) }, "a key of a column that is not read")
        case .within(let range): precondition(slots.contains(range.slot), "a range of a column that is not read")
        case .never, .always, .scan:
            precondition(!isDecidedByAccess || access != .scan, "who is found by trying is decided by nothing")
        }
    }
}
