import Bytes
import Change
import Diagnostics
import EventLog

/// Question about one row, until PostgreSQL has answered all parts of it.
final class PendingQuestion {
    enum Answer {
        case none
        case given(Bool)
        case failed
    }

    private(set) var answer = Answer.none
    /// Number of parts that have no answer yet: a filter's and a policy's. If one denies, the other need not be waited
    /// for.
    private var missing: Int
    private var hasFailedPart = false
    /// True if a policy's failure counts as a denial. A subscriber that was told of a failure on rows that its filter
    /// matches would learn about rows that it may not see.
    let hidesFailures: Bool
    /// Listeners whose first waiting delivery may go on when the question is answered.
    var listeners: [UInt32] = []

    init(parts: Int = 1, hidesFailures: Bool = false) {
        assert(parts > 0, "a question has a part")
        missing = parts
        self.hidesFailures = hidesFailures
    }

    /// Records that the policy failed on the row, which PostgreSQL then shows to nobody. With a filter this counts as
    /// no, as for rows that the filter excludes.
    func fail() { take(hidesFailures ? false : nil) }

    /// Takes the answer to one part; nil if the answer could not be found out.
    ///
    /// A policy's denial holds even if the filter failed: no client is told that a filter failed on a row that the
    /// client may not see.
    func take(_ part: Bool?) {
        guard case .none = answer else { return }
        precondition(missing > 0, "a question has no more answers than parts")
        missing -= 1
        if part == nil { hasFailedPart = true }
        if part == false {
            answer = .given(false)
        } else if missing == 0 {
            answer = hasFailedPart ? .failed : .given(true)
            assert(part != nil || hasFailedPart, "what is not known is no yes")
        }
    }
}

/// Condition that decides if a binding is among those that a delivery is for.
struct DeferredBinding {
    let binding: UInt8
    let question: PendingQuestion
    /// Answer that fulfils the condition. False is needed for a row that moved out of view: the client is told if the
    /// client no longer sees the row.
    var wanted = true
}

/// Number of bytes that wait on one loop.
final class WaitingTotal {
    private let held: Gauge

    /// - Parameter held: gauge that all loops share.
    init(_ held: Gauge) { self.held = held }

    var bytes = 0 {
        didSet { held.add(Int64(bytes - oldValue)) }
    }
}

/// Body that one or many deliveries wait with. Its bytes count for as long as a delivery holds it.
final class WaitingBody {
    let bytes: [UInt8]
    private let total: WaitingTotal

    init(_ bytes: [UInt8], _ total: WaitingTotal) {
        self.bytes = bytes
        self.total = total
        total.bytes += bytes.count
    }

    deinit { total.bytes -= bytes.count }
}

/// Body of a change in one view.
struct SeenBody {
    /// Body that all deliveries of this change with the same view share.
    let body: WaitingBody
    let view: UInt32
}

/// Delivery that waits for an answer, or behind another that does.
struct WaitingDelivery {
    let seen: SeenBody
    /// Question whether the old row may be seen, and the body that is sent if not; nil if nothing is asked about the
    /// old row.
    let past: (question: PendingQuestion, masked: SeenBody)?
    let operation: Operation
    let bindings: BindingSet
    let provisos: [DeferredBinding]
    /// Position of a channel that has received the delivery.
    let position: EventLogPosition

    var isAnswered: Bool {
        for proviso in provisos { if case .none = proviso.question.answer { return false } }
        if let past, case .none = past.question.answer { return false }
        return true
    }

    /// Bindings that the delivery may be for.
    var asked: BindingSet { provisos.reduce(bindings) { $0 | 1 << BindingSet($1.binding) } }

    var byteCount: Int {
        seen.body.bytes.count + (past?.masked.body.bytes.count ?? 0) + Limits.waitingDeliveryBytes
    }

    /// Returns the bindings that the delivery is for. `isUncertain` is true if that could not be found out for some
    /// bindings.
    func outcome() -> (bindings: BindingSet, isUncertain: Bool) {
        precondition(isAnswered, "a delivery goes out when all that it depends on is known")
        var (bindings, refused, isUncertain) = (self.bindings, BindingSet(0), false)
        for proviso in provisos {
            switch proviso.question.answer {
            case .given(proviso.wanted): bindings |= 1 << BindingSet(proviso.binding)
            case .given: refused |= 1 << BindingSet(proviso.binding)
            case .none, .failed:
                refused |= 1 << BindingSet(proviso.binding)
                isUncertain = true
            }
        }
        return (bindings & ~refused | self.bindings, isUncertain)
    }

    /// Body that is sent: with any doubt about the old row, one that shows only its keys.
    var shown: SeenBody {
        guard let past else { return seen }
        if case .given(true) = past.question.answer { return seen }
        assert(past.masked.view != seen.view, "what hides the old row is another view")
        return past.masked
    }
}

/// Deliveries that wait for one channel, in order.
struct WaitingQueue {
    var deliveries: [WaitingDelivery] = []
    private var first = 0
    private(set) var bytes = 0

    var isEmpty: Bool { first == deliveries.count }
    var count: Int { deliveries.count - first }

    var next: WaitingDelivery? { isEmpty ? nil : deliveries[first] }

    mutating func append(_ delivery: WaitingDelivery) {
        deliveries.append(delivery)
        bytes += delivery.byteCount
    }

    /// Removes and returns the next delivery, if all its questions are answered.
    mutating func popAnswered() -> WaitingDelivery? {
        guard first < deliveries.count, deliveries[first].isAnswered else { return nil }
        let delivery = deliveries[first]
        first += 1
        bytes -= delivery.byteCount
        assert(bytes >= 0, "no more is taken out than was put in")
        if first > 64, first * 2 > deliveries.count {
            deliveries.removeFirst(first)
            first = 0
        }
        return delivery
    }
}
