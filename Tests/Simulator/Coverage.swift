import Delivery
import Synchronization

/// Number of times that each kind of event occurred in each stage of delivery.
final class Coverage: Sendable {
    private let met = Mutex<[String: Int]>([:])

    var counts: [String: Int] { met.withLock { $0 } }

    var watcher: DeliveryWatcher {
        { [self] stage, event in met.withLock { $0["\(stage) × \(event)", default: 0] += 1 } }
    }
}
