import Bytes
import Change
import Diagnostics

/// One question about one row, until PostgreSQL answers it.
final class PendingQuestion {
    enum Answer {
        case none
        case given(Bool)
        case failed
    }

    var answer = Answer.none
    /// Those whose first waiting delivery may go on when it is answered.
    var listeners: [UInt32] = []
}

/// How much waits on one loop.
final class WaitingTotal {
    var bytes = 0 {
        didSet { Metrics.shared.heldBytes.add(Int64(bytes - oldValue)) }
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

/// A delivery that waits: for an answer, or behind one that does.
struct WaitingDelivery {
    /// Shared by all who see the same of the change.
    let body: WaitingBody
    let view: UInt32
    let operation: Operation
    var bindings: BindingSet
    let asked: [(question: PendingQuestion, binding: UInt8)]
    let commitTime: Int64
}

/// What waits for one channel, in order.
struct WaitingQueue {
    var deliveries: [WaitingDelivery] = []
    private var first = 0
    private(set) var bytes = 0

    var isEmpty: Bool { first == deliveries.count }
    var count: Int { deliveries.count - first }

    mutating func append(_ delivery: WaitingDelivery) {
        deliveries.append(delivery)
        bytes += delivery.body.bytes.count + Limits.waitingDeliveryBytes
    }

    /// The next one if every question of it is answered.
    mutating func popAnswered() -> WaitingDelivery? {
        guard first < deliveries.count else { return nil }
        for asked in deliveries[first].asked {
            if case .none = asked.question.answer { return nil }
        }
        let delivery = deliveries[first]
        first += 1
        bytes -= delivery.body.bytes.count + Limits.waitingDeliveryBytes
        if first > 64, first * 2 > deliveries.count {
            deliveries.removeFirst(first)
            first = 0
        }
        return delivery
    }
}
