/// Seats of connections of which the application must be told at the end of the turn.
struct PendingReports {
    let ended = PlainArray<UInt32>()
    /// Connections that are too slow.
    let fallen = PlainArray<UInt32>()
    /// Connections that take output slowly, and those that have taken it all since.
    let filled = PlainArray<UInt32>()
    let drained = PlainArray<UInt32>()
    /// Connections whose incomplete input exceeds the budget.
    let overfull = PlainArray<UInt32>()

    /// True if a report that may change connections is still to be made.
    var areLeft: Bool { !ended.isEmpty || !fallen.isEmpty || !overfull.isEmpty }
}
