import Change
import TestSupport
import Testing

@testable import Replication

@Suite(.within(minutes: 5)) struct SlotOutlookTests {
    private static let second: UInt64 = 1_000_000_000

    private func take(
        _ outlook: inout SlotOutlook, at seconds: UInt64, kept: Int64, limit: Int64? = 1000, isUnreserved: Bool = false
    ) -> SlotOutlook.Notice? {
        outlook.take(
            SlotOutlook.Sample(at: seconds * Self.second, kept: kept, limit: limit, isUnreserved: isUnreserved),
            reminding: 600 * Self.second)
    }

    @Test func `a slot that nears its limit is told at half and at four fifths, with the time that is left`() {
        var outlook = SlotOutlook()
        #expect(take(&outlook, at: 0, kept: 100) == nil)
        #expect(take(&outlook, at: 10, kept: 499) == nil)
        #expect(take(&outlook, at: 20, kept: 500) == SlotOutlook.Notice(level: .half, secondsLeft: 25))
        #expect(take(&outlook, at: 30, kept: 600) == nil)
        #expect(take(&outlook, at: 40, kept: 800) == SlotOutlook.Notice(level: .near, secondsLeft: 11))
        #expect(take(&outlook, at: 50, kept: 800, isUnreserved: true)?.level == .beyond)
        #expect(take(&outlook, at: 60, kept: 700) == nil, "better is no news until it is well")
        #expect(take(&outlook, at: 70, kept: 10)?.level == .well)
        #expect(take(&outlook, at: 80, kept: 10) == nil)
    }

    @Test func `it is told again now and then for as long as it lasts`() {
        var outlook = SlotOutlook()
        let told = (0...130).filter { take(&outlook, at: UInt64($0) * 10, kept: 600) != nil }
        #expect(told == [0, 60, 120])
        #expect(take(&outlook, at: 2000, kept: 600)?.secondsLeft == nil, "what does not grow is not late")
    }

    @Test func `without a limit nothing is near, but what is no longer reserved`() {
        var outlook = SlotOutlook()
        #expect(take(&outlook, at: 0, kept: .max, limit: nil) == nil)
        #expect(take(&outlook, at: 10, kept: .max, limit: nil, isUnreserved: true)?.level == .beyond)
        #expect(take(&outlook, at: 20, kept: 1, limit: 0)?.level == nil)
        #expect(outlook.level == .near)
    }

    @Test func `the lag in seconds is that of the oldest that has not come`() {
        var clock = LagClock(caughtUpAt: 0)
        clock.saw(LSN(100), LSN(100), at: 10 * Self.second)
        #expect(clock.seconds(at: 20 * Self.second) == 0)
        clock.saw(LSN(200), LSN(150), at: 20 * Self.second)
        clock.saw(LSN(300), LSN(150), at: 30 * Self.second)
        #expect(clock.seconds(at: 50 * Self.second) == 30)
        clock.pass(LSN(200), at: 50 * Self.second)
        #expect(clock.seconds(at: 50 * Self.second) == 20)
        clock.pass(LSN(300), at: 51 * Self.second)
        #expect(clock.seconds(at: 60 * Self.second) == 0)
    }

    @Test func `while the server cannot be asked, time goes on from when the log had everything`() {
        var clock = LagClock(caughtUpAt: 5 * Self.second)
        #expect(clock.seconds(at: 15 * Self.second) == 10, "a hub that was away")
        clock.saw(LSN(200), LSN(100), at: 20 * Self.second)
        #expect(clock.seconds(at: 20 * Self.second) == 15, "there was something to come meanwhile")
        clock.pass(LSN(200), at: 25 * Self.second)
        clock.lost(LSN(200), at: 30 * Self.second)
        #expect(clock.seconds(at: 40 * Self.second) == 10)
        clock.saw(LSN(200), LSN(200), at: 50 * Self.second)
        #expect(clock.seconds(at: 50 * Self.second) == 0)
    }

    /// Checks a lag of any length: its measurement needs no more memory, and never reports more than the true lag.
    @Test func `a long lag is measured in little room`() {
        var clock = LagClock(caughtUpAt: 0)
        clock.saw(LSN(1), LSN(1), at: 0)
        for step in 1...10_000 as ClosedRange<UInt64> { clock.saw(LSN(1 + step), LSN(1), at: step * Self.second) }
        #expect(clock.seconds(at: 10_000 * Self.second) == 9_999)
        clock.pass(LSN(5_000), at: 10_000 * Self.second)
        #expect((4_000...5_001).contains(clock.seconds(at: 10_000 * Self.second)))
    }
}
