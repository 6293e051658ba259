import Change

/// Change together with the schema of its rows.
struct ReadableChange: ~Escapable {
    let change: Change
    let relation: Relation

    @_lifetime(copy change)
    init(_ change: borrowing Change, _ relation: Relation) {
        self.change = copy change
        self.relation = relation
    }
}
