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

/// A delivery that waits: for an answer, or behind one that does.
struct WaitingDelivery {
    /// Shared by all who wait with the same body.
    let body: [UInt8]
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

    mutating func append(_ delivery: WaitingDelivery) {
        deliveries.append(delivery)
        bytes += delivery.body.count
    }

    /// The next one if every question of it is answered.
    mutating func popAnswered() -> WaitingDelivery? {
        guard first < deliveries.count else { return nil }
        for asked in deliveries[first].asked {
            if case .none = asked.question.answer { return nil }
        }
        let delivery = deliveries[first]
        first += 1
        bytes -= delivery.body.count
        if first > 64, first * 2 > deliveries.count {
            deliveries.removeFirst(first)
            first = 0
        }
        return delivery
    }
}
