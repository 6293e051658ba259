import Diagnostics

/// Work that one turn of a loop may do before the loop serves its sockets.
struct TurnBudget {
    private var bytes = Limits.turnLogBytes
    private var deliveries = Limits.turnDeliveries
    /// Unix time in seconds at which the first token of a channel expires.
    private let expiry: Int64

    /// Creates the budget of a turn. If `sharing` is true, the turn is a catch-up's: its budget is smaller, to leave
    /// time for clients at the log's end.
    init(until expiry: Int64, sharing: Bool) {
        self.expiry = expiry
        guard sharing else { return }
        bytes /= Limits.catchUpShare
        deliveries /= Limits.catchUpShare
    }

    /// True if the tokens of all channels are still valid at `now`, in Unix seconds.
    func isBeforeExpiry(_ now: Int64) -> Bool { now < expiry }

    func isLeft(on sink: any FrameSink) -> Bool {
        bytes > 0 && deliveries > 0 && sink.turnPieceBytes < Limits.turnPieceBytes
            && !sink.hasQueuedEnough
    }

    mutating func spend(entry size: Int) { bytes -= size + 64 }
    mutating func spend(deliveries count: Int) { deliveries -= count + 1 }
    mutating func end() { deliveries = 0 }
}
