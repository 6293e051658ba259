import TestSupport
import Testing

@testable import Asking

@Suite(.within(minutes: 2)) struct PenaltiesTests {
    private let second: UInt64 = 1_000_000_000

    @Test func `a penalty lasts as long as it should`() {
        var penalties = Penalties<Int>(limit: 2, each: .seconds(1))
        #expect(!penalties.isActive(at: 0))
        penalties.add(1, at: 5)
        #expect(penalties.contains(1, at: 5) && penalties.contains(1, at: 4 + second))
        #expect(!penalties.contains(1, at: 5 + second) && !penalties.isActive(at: 5 + second))
        #expect(!penalties.contains(2, at: 5))
    }

    @Test func `who is penalised again before it is over is counted, and waits anew`() {
        var penalties = Penalties<Int>(limit: 2, each: .seconds(1))
        penalties.add(1, at: 0)
        penalties.add(1, at: second / 2)
        #expect(penalties.count(1, at: second) == 2)
        penalties.add(1, at: 2 * second)
        #expect(penalties.count(1, at: 2 * second) == 1)
    }

    @Test func `there is room for so many, and first for those who have it`() {
        var penalties = Penalties<Int>(limit: 2, each: .seconds(1))
        penalties.add(1, at: 0)
        penalties.add(2, at: second / 2)
        penalties.add(3, at: second / 2)
        #expect(!penalties.contains(3, at: second / 2))
        penalties.add(2, at: second / 2 + 1)
        #expect(penalties.count(2, at: second / 2 + 1) == 2)
        penalties.add(3, at: second)
        #expect(penalties.contains(3, at: second) && penalties.contains(2, at: second))
        #expect(!penalties.contains(1, at: second))
    }
}
