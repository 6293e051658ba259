import Bytes
import Change
import Diagnostics
import EventLog

/// Question to PostgreSQL about one row: if it matches a filter, if a holder may see it by a policy, or both.
final class PendingQuestion {
    enum Answer {
        case none
        case given(Bool)
        case failed
    }

    private(set) var answer = Answer.none
    /// Number of parts (filter, policy) that PostgreSQL has not answered. If one part is denied, the other is not
    /// needed.
    private var missing: Int
    private var hasFailedPart = false
    /// True if a policy's failure counts as a denial. If a subscriber learned of failures on rows that its filter
    /// matches, it would learn about rows that it may not see.
    let hidesFailures: Bool
    /// Listeners whose first waiting delivery needs the answer.
    var listeners: [UInt32] = []

    init(parts: Int = 1, hidesFailures: Bool = false) {
        assert(parts > 0, "a question has a part")
        missing = parts
        self.hidesFailures = hidesFailures
    }

    /// Records that the policy failed on the row, so that PostgreSQL shows the row to no holder. If `hidesFailures` is
    /// true, this counts as a denial.
    func fail() { take(hidesFailures ? false : nil) }

    /// Records the answer to one part; nil if PostgreSQL could not decide.
    ///
    /// A policy's denial holds even if the filter failed: no client learns that a filter failed on a row that the
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

/// Binding that receives a delivery only if PostgreSQL answers a question as wanted.
struct DeferredBinding {
    let binding: UInt8
    let question: PendingQuestion
    /// Answer that is wanted. It is false for a row that may have left the client's view: the client is notified only
    /// if it no longer sees the row.
    var wanted = true
}

/// Number of bytes that wait for PostgreSQL's answers on one loop.
final class WaitingTotal {
    private let held: Gauge

    /// Creates an empty total.
    ///
    /// - Parameter held: gauge that all loops share.
    init(_ held: Gauge) { self.held = held }

    var bytes = 0 {
        didSet { held.add(Int64(bytes - oldValue)) }
    }
}

/// Body of a change that waiting deliveries share. Its bytes are counted while some delivery holds it.
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

/// Body of a change in one view, for deliveries that wait.
struct SeenBody {
    /// Body that all waiting deliveries of this change with the same view share.
    let body: WaitingBody
    let view: UInt32
}

/// Delivery that waits for PostgreSQL's answers, or for an earlier delivery to the same channel.
struct WaitingDelivery {
    let seen: SeenBody
    /// Question whether the client may see the old row, and the body to send if it may not; nil if there is no such
    /// question.
    let past: (question: PendingQuestion, masked: SeenBody)?
    let operation: Operation
    let bindings: BindingSet
    let deferredBindings: [DeferredBinding]
    /// Position in the log at which the channel is once it has received the delivery.
    let position: EventLogPosition

    var isAnswered: Bool {
        for proviso in deferredBindings { if case .none = proviso.question.answer { return false } }
        if let past, case .none = past.question.answer { return false }
        return true
    }

    /// Bindings that the delivery may turn out to be for: those that match, and those that depend on answers.
    var asked: BindingSet { deferredBindings.reduce(bindings) { $0 | 1 << BindingSet($1.binding) } }

    var byteCount: Int {
        seen.body.bytes.count + (past?.masked.body.bytes.count ?? 0) + Limits.waitingDeliveryBytes
    }

    /// Returns the bindings that the delivery is for. `isUncertain` is true if PostgreSQL could not decide on some
    /// binding.
    func outcome() -> (bindings: BindingSet, isUncertain: Bool) {
        precondition(isAnswered, "a delivery goes out when all that it depends on is known")
        var (bindings, refused, isUncertain) = (self.bindings, BindingSet(0), false)
        for proviso in deferredBindings {
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

    /// Body to send. If it is not certain that the client may see the old row, the old row is omitted or reduced to its
    /// keys.
    var shown: SeenBody {
        guard let past else { return seen }
        if case .given(true) = past.question.answer { return seen }
        assert(past.masked.view != seen.view, "what hides the old row is another view")
        return past.masked
    }
}

/// Waiting deliveries of one channel, in order.
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

    /// Removes and returns the next delivery, if PostgreSQL has answered all its questions.
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
