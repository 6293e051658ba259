import Change
import Diagnostics
import EventLog
import TestSupport
import Testing

@testable import Delivery

@Suite(.within(minutes: 1)) struct WaitingDeliveriesTests {
    private let held = Gauge()

    private func delivery(
        _ question: PendingQuestion, at offset: UInt64, in deliveries: inout WaitingDeliveries, bytes: Int = 100
    ) -> WaitingDelivery {
        let body = deliveries.body(UInt32(offset)) { [UInt8](repeating: 0, count: bytes) }
        return WaitingDelivery(
            seen: SeenBody(body: body, view: 0), past: nil, operation: .insert, bindings: 0,
            deferredBindings: [DeferredBinding(binding: 0, question: question)],
            position: EventLogPosition(epoch: 1, offset: offset + 1))
    }

    @Test func `deliveries go out in order, and nothing is held afterwards`() {
        var waiting = WaitingDeliveries(held)
        let (first, second) = (PendingQuestion(), PendingQuestion())
        let fit = [(first, 5), (second, 6)].map { waiting.add(delivery($0, at: $1, in: &waiting), for: 1) }
        #expect(fit == [true, true])
        #expect(waiting.first(of: 1) == 5 && waiting.first == 5 && waiting.everHeld == 2)
        second.take(true)
        #expect(waiting.takeAnswered(1) == nil)
        #expect(waiting.settle(1) == false)
        first.take(false)
        let out = [waiting.takeAnswered(1), waiting.takeAnswered(1)].map { $0?.position.offset }
        let isDone = waiting.settle(1)
        #expect(out == [6, 7] && isDone)
        waiting.beginChange()
        #expect(waiting.isEmpty && held.value == 0)
        // No delivery waits for it any more.
        #expect(waiting.settle(1) == false)
    }

    @Test func `one listener with too much waiting is reported, and dropping it frees the room`() {
        var waiting = WaitingDeliveries(held)
        let size = Limits.maximumWaitingDeliveryBytes / 3
        var added: [Bool] = []
        for offset in 0..<3 as Range<UInt64> {
            added.append(waiting.add(delivery(PendingQuestion(), at: offset, in: &waiting, bytes: size), for: 1))
        }
        #expect(added == [true, true, false] && waiting.isBurdened)
        #expect(waiting.drop(1) == true)
        #expect(waiting.drop(1) == false)
        waiting.beginChange()
        #expect(!waiting.isBurdened && held.value == 0)
    }

    @Test func `reading waits for room for a while, and not again before most has gone out`() {
        var waiting = WaitingDeliveries(held)
        #expect(waiting.isCrowded(1) == false)
        let size = Limits.maximumWaitingTotalBytes / 2 + 1
        _ = waiting.add(delivery(PendingQuestion(), at: 0, in: &waiting, bytes: size), for: 1)
        #expect(waiting.isCrowded(1) == true)
        let later = 1 + UInt64(Limits.crowdPatience.components.seconds) * 1_000_000_000
        #expect(waiting.isCrowded(later) == false)
        #expect(waiting.isCrowded(later + 1) == false)
        #expect(waiting.drop(1) == true)
        waiting.beginChange()
        #expect(waiting.isCrowded(later + 2) == false)
    }
}
