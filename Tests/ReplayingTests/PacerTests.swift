import TestSupport
import Testing

@testable import Replaying

@Suite(.within(minutes: 5)) struct PacerTests {
    @Test func `the time between commits is what it was, divided`() {
        var pacer = Pacer(.times(2))
        #expect(pacer.wait(for: 10_000_000, now: 500) == 0)
        // The change was committed two seconds later, and the speed is doubled.
        #expect(pacer.wait(for: 12_000_000, now: 500) == 1_000_000_000)
        #expect(pacer.wait(for: 12_000_000, now: 400_000_500) == 600_000_000)
        #expect(pacer.wait(for: 12_000_000, now: 1_000_000_500) == 0)
    }

    @Test func `who is late makes up for it, and commits that come out of order do not wait`() {
        var pacer = Pacer(.original)
        #expect(pacer.wait(for: 1_000_000, now: 0) == 0)
        #expect(pacer.wait(for: 2_000_000, now: 5_000_000_000) == 0)
        #expect(pacer.wait(for: 3_000_000, now: 5_000_000_000) == 0)
        #expect(pacer.wait(for: 7_000_000, now: 5_000_000_000) == 1_000_000_000)
        #expect(pacer.wait(for: 500_000, now: 5_000_000_000) == 0)
    }

    @Test func `what held it up is added`() {
        var pacer = Pacer(.original)
        #expect(pacer.wait(for: 0, now: 0) == 0)
        pacer.heldUp(for: 60_000_000_000)
        #expect(pacer.wait(for: 1_000_000, now: 60_000_000_000) == 1_000_000_000)
    }

    @Test func `as fast as it goes never waits`() {
        var pacer = Pacer(.maximum)
        for commit in [0, 1 << 50, 5] as [Int64] { #expect(pacer.wait(for: commit, now: 0) == 0) }
    }

    @Test func `speeds are read`() {
        #expect(Pacer.Speed("original") == .original && Pacer.Speed("max") == .maximum)
        #expect(Pacer.Speed("x10") == .times(10) && Pacer.Speed("x0.5") == .times(0.5))
        for text in ["", "x", "10", "x0", "x-1", "xnan", "xinf", "x1e9"] { #expect(Pacer.Speed(text) == nil) }
        #expect("\(Pacer.Speed.times(10))" == "at 10 times the original speed")
    }
}
