import TestSupport
import Testing

@testable import Channels

private final class Desk {
    var receipt = SocketReceipt()
    var since: UInt64? { receipt.since }
    var awaitsPong: Bool { receipt.awaitsPong }
    func sent(after mark: UInt64, upTo reached: UInt64) -> UInt64? { receipt.sent(after: mark, upTo: reached) }
    func answered(_ offset: UInt64) -> SocketReceipt.Answer { receipt.answered(offset) }
}

@Suite(.within(minutes: 2)) struct SocketReceiptTests {
    @Test func `who was sent nothing has all that there is`() {
        #expect(SocketReceipt().since == nil)
    }

    @Test func `who was sent something has what was before, until it answers`() {
        let receipt = Desk()
        #expect(receipt.sent(after: 5, upTo: 9) == 9)
        #expect(receipt.since == 5 && receipt.awaitsPong)
        #expect(receipt.answered(8) == .none && receipt.since == 5)
        #expect(receipt.answered(9) == .quiet && receipt.since == nil)
        #expect(receipt.answered(9) == .none)
    }

    @Test func `one ping is under way at a time, and what came behind it is asked about next`() {
        let receipt = Desk()
        #expect(receipt.sent(after: 5, upTo: 9) == 9)
        #expect(receipt.sent(after: 9, upTo: 12) == nil)
        #expect(receipt.since == 5)
        #expect(receipt.answered(9) == .more && receipt.since == 9)
        #expect(receipt.sent(after: 12, upTo: 14) == 14)
        #expect(receipt.since == 9)
        #expect(receipt.answered(14) == .quiet && receipt.since == nil)
    }
}
