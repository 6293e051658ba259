import Dispatch
import Foundation

/// The client's clock, which tests can control.
package protocol ClientClock: Sendable {
    /// Time since an arbitrary moment that the clock has chosen.
    var now: Duration { get }
    /// Calls `perform` once when the clock reaches `moment`, on any thread.
    func wake(at moment: Duration, _ perform: @escaping @Sendable () -> Void)
}

package struct SystemClock: ClientClock {
    private let start = DispatchTime.now().uptimeNanoseconds
    private let queue = DispatchQueue(label: "tidewire.clock")

    package init() {}

    package var now: Duration { .nanoseconds(Int64(DispatchTime.now().uptimeNanoseconds - start)) }

    package func wake(at moment: Duration, _ perform: @escaping @Sendable () -> Void) {
        let (seconds, attoseconds) = moment.components
        let due = start + UInt64(max(0, seconds)) * 1_000_000_000 + UInt64(max(0, attoseconds)) / 1_000_000_000
        queue.asyncAfter(deadline: DispatchTime(uptimeNanoseconds: due), execute: perform)
    }
}
