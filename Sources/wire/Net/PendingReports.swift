/// Seats of the connections that the loop reports to the application at the end of the turn.
struct PendingReports {
    /// Connections that have ended.
    let ended = PlainArray<UInt32>()
    /// Connections that take their output too slowly, so that the loop will close them.
    let fallen = PlainArray<UInt32>()
    /// Connections whose backlog has exceeded `filledBytes`.
    let filled = PlainArray<UInt32>()
    /// Connections whose backlog was filled and is now empty.
    let drained = PlainArray<UInt32>()
    /// Connections whose incomplete input exceeds the budget.
    let overfull = PlainArray<UInt32>()

    /// True if reports are left whose delivery may end connections or queue output.
    var areLeft: Bool { !ended.isEmpty || !fallen.isEmpty || !overfull.isEmpty }
}
