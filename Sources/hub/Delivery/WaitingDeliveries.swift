import Diagnostics
import EventLog

/// Deliveries of one router that wait for PostgreSQL's answers, by listener, and the room that they take.
struct WaitingDeliveries {
    private var queues: [UInt32: WaitingQueue] = [:]
    private let total: WaitingTotal
    /// Bodies of the current change that waiting deliveries hold, by view.
    private var bodies: [UInt32: WaitingBody] = [:]
    /// Listeners for which much data waits.
    private var burdened: Set<UInt32> = []
    /// Time at which too much data began to wait; nil if that is not so.
    private var crowdedSince: UInt64?
    /// Number of deliveries that ever had to wait.
    private(set) var everHeld = 0

    /// - Parameter held: gauge of the waiting bytes, which all loops share.
    init(_ held: Gauge) { total = WaitingTotal(held) }

    var isEmpty: Bool { queues.isEmpty }

    /// Begins another change, whose bodies differ.
    mutating func beginChange() {
        if !bodies.isEmpty { bodies = [:] }
    }

    /// Returns the body of the current change in a view, which `copy` makes if nothing waits with it yet.
    mutating func body(_ view: UInt32, copy: () -> [UInt8]) -> WaitingBody {
        if let known = bodies[view] { return known }
        let made = WaitingBody(copy(), total)
        bodies[view] = made
        return made
    }

    /// Adds a delivery behind the listener's others. Returns false if too much waits now.
    mutating func add(_ delivery: WaitingDelivery, for listener: UInt32) -> Bool {
        queues[listener, default: WaitingQueue()].append(delivery)
        total.bytes += Limits.waitingDeliveryBytes
        everHeld += 1
        let bytes = queues[listener]?.bytes ?? 0
        if bytes > Limits.maximumWaitingDeliveryBytes / 4 { burdened.insert(listener) }
        return bytes <= Limits.maximumWaitingDeliveryBytes && total.bytes <= Limits.maximumWaitingTotalBytes
    }

    /// Removes and returns the listener's next delivery, if all its questions are answered.
    mutating func takeAnswered(_ listener: UInt32) -> WaitingDelivery? {
        guard let delivery = queues[listener]?.popAnswered() else { return nil }
        total.bytes -= Limits.waitingDeliveryBytes
        assert(total.bytes >= 0, "no more is taken out than was put in")
        return delivery
    }

    /// Ends the taking of answered deliveries. Returns true if the listener waited until now and has no delivery left.
    mutating func settle(_ listener: UInt32) -> Bool {
        guard let queue = queues[listener] else { return false }
        if queue.bytes <= Limits.maximumWaitingDeliveryBytes / 4 { burdened.remove(listener) }
        if queue.isEmpty { queues[listener] = nil }
        return queue.isEmpty
    }

    /// Drops the listener's deliveries. True if there were any.
    mutating func drop(_ listener: UInt32) -> Bool {
        guard let queue = queues.removeValue(forKey: listener) else { return false }
        burdened.remove(listener)
        total.bytes -= queue.count * Limits.waitingDeliveryBytes
        return true
    }

    /// True if so much waits for answers that a follower which need not keep up with the log should wait.
    var isBurdened: Bool { !burdened.isEmpty || total.bytes > Limits.maximumWaitingTotalBytes / 4 }

    /// True if so much waits that reading the log should wait too. This is limited in time, and does not recur before
    /// most of the data has gone out.
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
