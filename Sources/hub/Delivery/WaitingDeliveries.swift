import Diagnostics
import EventLog

/// Deliveries of one router that wait for PostgreSQL's answers, by listener, and the memory that they use.
struct WaitingDeliveries {
    private var queues: [UInt32: WaitingQueue] = [:]
    private let total: WaitingTotal
    /// Bodies of the current change that waiting deliveries hold, by view.
    private var bodies: [UInt32: WaitingBody] = [:]
    /// Listeners with so many waiting bytes that a catch-up should stop reading.
    private var burdened: Set<UInt32> = []
    /// Monotonic time in nanoseconds at which too many bytes began to wait; nil if there are not too many.
    private var crowdedSince: UInt64?
    /// Number of deliveries that ever had to wait for PostgreSQL.
    private(set) var everHeld = 0

    /// Creates a table without deliveries.
    ///
    /// - Parameter held: gauge of the waiting bytes, which all loops share.
    init(_ held: Gauge) { total = WaitingTotal(held) }

    var isEmpty: Bool { queues.isEmpty }

    /// Begins another change: discards the bodies kept of the previous one.
    mutating func beginChange() {
        if !bodies.isEmpty { bodies = [:] }
    }

    /// Returns the body of the current change in a view. Calls `copy` if no waiting delivery has it yet.
    mutating func body(_ view: UInt32, copy: () -> [UInt8]) -> WaitingBody {
        if let known = bodies[view] { return known }
        let made = WaitingBody(copy(), total)
        bodies[view] = made
        return made
    }

    /// Adds a delivery after the listener's others. Returns false if more waits now than the limits allow.
    mutating func add(_ delivery: WaitingDelivery, for listener: UInt32) -> Bool {
        queues[listener, default: WaitingQueue()].append(delivery)
        total.bytes += Limits.waitingDeliveryBytes
        everHeld += 1
        let bytes = queues[listener]?.bytes ?? 0
        if bytes > Limits.maximumWaitingDeliveryBytes / 4 { burdened.insert(listener) }
        return bytes <= Limits.maximumWaitingDeliveryBytes && total.bytes <= Limits.maximumWaitingTotalBytes
    }

    /// Removes and returns the listener's next delivery, if PostgreSQL has answered all its questions.
    mutating func takeAnswered(_ listener: UInt32) -> WaitingDelivery? {
        guard let delivery = queues[listener]?.popAnswered() else { return nil }
        total.bytes -= Limits.waitingDeliveryBytes
        assert(total.bytes >= 0, "no more is taken out than was put in")
        return delivery
    }

    /// Updates the listener's state after answered deliveries were removed. Returns true if none of its deliveries is
    /// left.
    mutating func settle(_ listener: UInt32) -> Bool {
        guard let queue = queues[listener] else { return false }
        if queue.bytes <= Limits.maximumWaitingDeliveryBytes / 4 { burdened.remove(listener) }
        if queue.isEmpty { queues[listener] = nil }
        return queue.isEmpty
    }

    /// Drops the deliveries that wait for the listener. Returns true if there were any.
    mutating func drop(_ listener: UInt32) -> Bool {
        guard let queue = queues.removeValue(forKey: listener) else { return false }
        burdened.remove(listener)
        total.bytes -= queue.count * Limits.waitingDeliveryBytes
        return true
    }

    /// True if so many deliveries wait for answers that a catch-up should stop reading.
    var isBurdened: Bool { !burdened.isEmpty || total.bytes > Limits.maximumWaitingTotalBytes / 4 }

    /// True if so many deliveries wait that any follower should stop reading. This ends after a limited time, and
    /// begins again only after most of the waiting bytes have been sent.
    mutating func isCrowded(_ now: UInt64) -> Bool {
        if total.bytes <= Limits.maximumWaitingTotalBytes / 4 {
            crowdedSince = nil
            return false
        }
        if crowdedSince == nil, total.bytes > Limits.maximumWaitingTotalBytes / 2 { crowdedSince = now }
        return crowdedSince.map { now - $0 < Limits.crowdPatience.wholeNanoseconds } ?? false
    }

    /// Returns the offset of the first change that waits for the listener; nil if none does.
    func first(of listener: UInt32) -> UInt64? { queues[listener]?.next.map { $0.position.offset - 1 } }

    /// Offset of the first change that waits for any listener; nil if none does.
    var first: UInt64? { queues.values.compactMap { $0.next.map { $0.position.offset - 1 } }.min() }
}
