import Change

/// Change with the schema by which its rows are read.
struct ReadableChange: ~Escapable {
    let change: Change
    let relation: Relation

    @_lifetime(copy change)
    init(_ change: borrowing Change, _ relation: Relation) {
        self.change = copy change
        self.relation = relation
    }
}
