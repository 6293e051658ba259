import Bytes
import Change
import Diagnostics
import EventLog

/// One question about one row, until PostgreSQL has answered all parts of it.
final class PendingQuestion {
    enum Answer {
        case none
        case given(Bool)
        case failed
    }

    private(set) var answer = Answer.none
    /// A filter's part and a policy's: what one of them denies need not wait for the other.
    private var missing: Int
    private var hasFailedPart = false
    /// True if a policy's failure counts as a denial. A subscriber that was told of a failure on rows that its filter matches
    /// would learn about rows that it may not see.
    private let hidesFailures: Bool
    /// Those whose first waiting delivery may go on when it is answered.
    var listeners: [UInt32] = []

    init(parts: Int = 1, hidesFailures: Bool = false) {
        assert(parts > 0, "a question has a part")
        missing = parts
        self.hidesFailures = hidesFailures
    }

    /// Records that the policy failed on the row, which PostgreSQL then shows to nobody. With a filter this counts as no, as
    /// for rows that the filter excludes.
    func fail() { take(hidesFailures ? false : nil) }

    /// A part's answer; nil when it could not be found out.
    ///
    /// What the policy denies is denied whatever became of the filter: nobody is told of a filter's failure on a row that
    /// he may not see.
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

/// What has to turn out for a binding to be among those that a delivery is for.
struct Proviso {
    let binding: UInt8
    let question: PendingQuestion
    /// The answer that is wanted: a row that moved out of view is told where it is not seen any more.
    var wanted = true
}

/// How much waits on one loop.
final class WaitingTotal {
    private let held: Gauge

    /// - Parameter held: the same of all loops.
    init(_ held: Gauge) { self.held = held }

    var bytes = 0 {
        didSet { held.add(Int64(bytes - oldValue)) }
    }
}

/// A body that waits, for one or many; counted for as long as somebody waits with it.
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

/// A body as some see it.
struct SeenBody {
    /// Shared by all who see the same of the change.
    let body: WaitingBody
    let view: UInt32
}

/// A delivery that waits: for an answer, or behind one that does.
struct WaitingDelivery {
    let seen: SeenBody
    /// Where the old row's visibility is asked for as well, and what is sent if it may not be seen.
    let past: (question: PendingQuestion, masked: SeenBody)?
    let operation: Operation
    let bindings: BindingSet
    let provisos: [Proviso]
    /// Where a channel stands that it was told to.
    let position: EventLogPosition

    var isAnswered: Bool {
        for proviso in provisos { if case .none = proviso.question.answer { return false } }
        if let past, case .none = past.question.answer { return false }
        return true
    }

    /// All that it may be for.
    var asked: BindingSet { provisos.reduce(bindings) { $0 | 1 << BindingSet($1.binding) } }

    var byteCount: Int {
        seen.body.bytes.count + (past?.masked.body.bytes.count ?? 0) + Limits.waitingDeliveryBytes
    }

    /// Whom it is for, and whether that could not be found out for some.
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

    /// What of the row is shown: with any doubt about the old row only its keys.
    var shown: SeenBody {
        guard let past else { return seen }
        if case .given(true) = past.question.answer { return seen }
        assert(past.masked.view != seen.view, "what hides the old row is another view")
        return past.masked
    }
}

/// What waits for one channel, in order.
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

    /// The next one if every question of it is answered.
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
