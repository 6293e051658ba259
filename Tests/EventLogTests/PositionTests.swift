import EventLog
import TestSupport
import Testing

/// Tests of the only text form of a position.
@Suite(.within(minutes: 1)) struct PositionTests {
    @Test(arguments: [
        (EventLogPosition(epoch: 0, offset: 0), "0000000000000000.0"),
        (EventLogPosition(epoch: 0x0a_bc, offset: 17), "0000000000000abc.17"),
        (EventLogPosition(epoch: .max, offset: .max), "ffffffffffffffff.18446744073709551615"),
    ])
    func `what is told is what is understood`(position: EventLogPosition, text: String) {
        #expect("\(position)" == text)
        #expect(EventLogPosition(text) == position)
    }

    @Test(arguments: [
        "", ".", "1", "1.2", "0000000000000001", "0000000000000001.", ".2", "0000000000000001.2.3",
        "0000000000000001.-2", "0000000000000001.+2", "+000000000000001.2", "-000000000000001.2",
        "0000000000000001. 2", "0000000000000001.2 ", "0000000000000001.18446744073709551616", "g000000000000001.2",
        "000000000000001.2", "00000000000000001.2", "0000000000000001.0x2", "0000000000000001.f", "000000000000００.2",
    ])
    func `what is none is not understood`(text: String) { #expect(EventLogPosition(text) == nil) }

    @Test(arguments: 0..<64) func `any position comes back`(seed: UInt64) {
        var random = SeededRandom(seed: seed)
        let position = EventLogPosition(epoch: random.next(), offset: random.next() >> (seed % 64))
        #expect(EventLogPosition("\(position)") == position)
    }
}
