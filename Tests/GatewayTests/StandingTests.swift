import TestSupport
import Testing

@testable import Gateway

@Suite(.within(minutes: 1)) struct StandingTests {
    @Test func `who stands in the oldest tenth of the log is near its end`() {
        #expect(Retention.isNear(1099, oldest: 1000, end: 2000))
        #expect(!Retention.isNear(1100, oldest: 1000, end: 2000))
        #expect(!Retention.isNear(1000, oldest: 1000, end: 1000), "a log of nothing")
        #expect(!Retention.isNear(2000, oldest: 1000, end: 2000))
    }

    @Test func `the slowest reader is that of all loops`() {
        let slowest = SlowestReader(loops: 2)
        #expect(slowest.offset == nil)
        slowest.set(7, of: 1)
        slowest.set(9, of: 0)
        #expect(slowest.offset == 7)
        slowest.set(nil, of: 1)
        #expect(slowest.offset == 9)
        var sweep = StandingSweep()
        for offset in [nil, 5, 3, nil, 4] as [UInt64?] { sweep.found(offset) }
        #expect(sweep.needed == 3)
    }
}
