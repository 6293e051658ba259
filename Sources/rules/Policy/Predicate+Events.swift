import Bytes

/// Evaluation of filters that read the row before a change.
extension Predicate {
    /// Returns the result of filter and policy together.
    func truthOfEvent(on row: borrowing RowImage) -> Truth {
        let filter = filterTruthOfEvent(on: row)
        guard let policyStart else { return filter }
        return filter.and(truth(from: policyStart, on: row))
    }

    /// Returns the result of the filter.
    ///
    /// The filter reads the old row only if the policy certainly shows that row to the subscriber. To a subscriber that
    /// may not see the old row, an update is the arrival of a row, like an insert. If it is not certain, no condition on
    /// the old row is decided, so that the result does not depend on the old row's values.
    func filterTruthOfEvent(on row: borrowing RowImage) -> Truth {
        guard let filterStart, let oldRowStart else { preconditionFailure("a filter that reads no old row") }
        guard row.oldRow == .known, let policyStart else { return truth(from: filterStart, on: row) }
        let sight = truth(from: policyStart, on: row.before(startingAt: oldRowStart))
        if sight == .yes { return truth(from: filterStart, on: row) }
        return truth(from: filterStart, on: row.with(oldRow: sight.may(be: .yes) ? .undecided : .none))
    }

    /// Returns the result of a test that reads the old row. Nil if the test is one of a value of that row, and the value
    /// decides.
    func truthOfEvent(_ test: Test, _ row: borrowing RowImage) -> Truth? {
        assert(test.readsOldRow, "a test of the row alone")
        switch row.oldRow {
        case .undecided: return .ask
        case .none where test.operation != .changed: return .unknown
        // Every column of a row that comes or goes counts as changed.
        case .none: return test.isNegated ? .no : .yes
        case .deleted: return test.operation == .changed ? test.isNegated ? .no : .yes : nil
        case .known:
            guard test.operation == .changed else { return nil }
            let truth = Self.isChanged(test, row)
            return test.isNegated ? truth.negated : truth
        }
    }

    /// Compares the values of a column before and after the change, as IS DISTINCT FROM does. Values of types that only
    /// PostgreSQL can compare differ if their texts do.
    private static func isChanged(_ test: Test, _ row: borrowing RowImage) -> Truth {
        let (new, old) = (Int(test.slot), Int(test.oldSlot))
        switch (row.kind(new), row.kind(old)) {
        case (.absent, _), (_, .absent): return .ask
        case (.null, .null): return .no
        case (.null, .text), (.text, .null): return .yes
        case (.text, .text):
            let (newText, oldText) = (row.text(new), row.text(old))
            if newText.equals(oldText) { return .no }
            return test.comparator.equal(newText, oldText) == true ? .no : .yes
        }
    }
}
