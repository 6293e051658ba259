extension Term {
    /// Returns the slot of the row's column by which the term looks a row up among the keys of a membership. If some
    /// keys come or go, only rows with these values in the column can change their verdict.
    ///
    /// Nil if the term looks up something else than a column, or several columns, or if it also depends on whether the
    /// membership has any row or a NULL key: where it is negated, these decide too.
    public func column(lookedUpIn membership: Membership) -> Int? {
        var slots: Set<Int> = []
        guard collectLookups(in: membership, &slots), slots.count == 1 else { return nil }
        return slots.first
    }

    /// Adds the columns that are looked up in the membership. Returns false if a lookup is not of a column, or stands
    /// where another result than true matters.
    private func collectLookups(in membership: Membership, _ slots: inout Set<Int>) -> Bool {
        switch self {
        case .member(membership, key: .column(let slot, _)?):
            slots.insert(slot)
            return true
        case .all(let terms), .any(let terms):
            return terms.allSatisfy { $0.collectLookups(in: membership, &slots) }
        case .isTrue(let term): return term.collectLookups(in: membership, &slots)
        default:
            var isMentioned = false
            visit { if case .member(membership, _) = $0 { isMentioned = true } }
            return !isMentioned
        }
    }
}
