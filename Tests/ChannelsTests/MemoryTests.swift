import Bytes
import TestSupport
import Testing

@testable import Channels

/// A client may cost two kilobytes in all; its channels may have a tenth of it.
@Suite(.within(minutes: 5)) struct MemoryTests {
    /// malloc's header, and its rounding to sixteen bytes.
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
