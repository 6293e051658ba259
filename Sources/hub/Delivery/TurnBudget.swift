import Diagnostics

/// Limits of one turn of a loop, after which the loop serves its sockets.
struct TurnBudget {
    private var bytes = Limits.turnLogBytes
    private var deliveries = Limits.turnDeliveries
    /// Time at which the first token expires, in Unix seconds.
    private let expiry: Int64

    /// Creates the budget of a turn. A catch-up (`sharing`) leaves most of the time to clients at the log's end.
    init(until expiry: Int64, sharing: Bool) {
        self.expiry = expiry
        guard sharing else { return }
        bytes /= Limits.catchUpShare
        deliveries /= Limits.catchUpShare
    }

    /// True if the tokens of all channels are still valid.
    func isBeforeExpiry(_ now: Int64) -> Bool { now < expiry }

    func isLeft(on sink: any FrameSink) -> Bool {
        bytes > 0 && deliveries > 0 && sink.turnPieceBytes < Limits.turnPieceBytes
            && !sink.hasQueuedEnough
    }

    mutating func spend(entry size: Int) { bytes -= size + 64 }
    mutating func spend(deliveries count: Int) { deliveries -= count + 1 }
    mutating func end() { deliveries = 0 }
}
