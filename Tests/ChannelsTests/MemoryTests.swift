import Bytes
import TestSupport
import Testing

@testable import Channels

/// Tests of memory limits. A client may use two kilobytes in all, and its channels a tenth of that.
@Suite(.within(minutes: 5)) struct MemoryTests {
    /// Returns the bytes that malloc uses for an allocation, with its header and rounded up to sixteen bytes.
    private func allocated(_ bytes: Int) -> Int { (bytes + 8 + 15) / 16 * 16 }

    @Test func `a socket with one channel takes few bytes`() {
        let arrayHeader = 32
        let topic = 40
        let slots = allocated(arrayHeader + MemoryLayout<ChannelSlot>.stride)
        let text = allocated(arrayHeader + topic)
        #expect(MemoryLayout<ChannelMachine>.size + slots + text <= 300)
    }

    @Test func `what a closed channel took is given back`() {
        let talk = Conversation()
        let ids = (0..<10).map { talk.joined("realtime:\($0)") }
        for id in ids { _ = talk.expel(id) }
        #expect(talk.capacity == 0)
    }
}
