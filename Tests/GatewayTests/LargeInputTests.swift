import Net
import TestSupport
import Testing

@testable import Gateway

@Suite(.within(minutes: 5)) struct LargeInputTests {
    private static let large = 100_000
    private static let small = 100
    private static let millisecond: UInt64 = 1_000_000

    private func connection(_ seat: UInt32) -> ConnectionID { ConnectionID(seat: seat, generation: 1) }

    private func waits(_ seat: UInt32, _ held: Int, mayGrow: Bool = false, in input: inout LargeInput) -> Bool {
        input.mustWait(connection(seat), holding: held, mayGrow: mayGrow)
    }

    private func next(_ input: inout LargeInput) -> UInt32? { input.takeNext()?.seat }

    private func begin(_ input: inout LargeInput, at milliseconds: UInt64) -> UInt64? {
        input.beginTurn(milliseconds * Self.millisecond)
    }

    @Test func `who sends little never waits, and nobody does while there is time`() {
        var input = LargeInput()
        #expect(begin(&input, at: 0) == nil)
        #expect(!waits(1, Self.large, in: &input))
        input.note(5 * Self.millisecond)
        #expect(input.isSpent)
        #expect(!waits(2, Self.small, in: &input))
        #expect(waits(2, Self.small, mayGrow: true, in: &input))
        #expect(waits(3, Self.large, in: &input))
    }

    @Test func `those that wait are read in their order, after joins not before three times as long as these took`() {
        var input = LargeInput()
        _ = input.beginTurn(0)
        input.note(3 * Self.millisecond)
        input.note(join: 3 * Self.millisecond)
        for seat in 1...3 as ClosedRange<UInt32> {
            #expect(waits(seat, Self.large, in: &input))
        }
        #expect(!input.someAreDue)
        #expect(next(&input) == nil)
        // A timer for the end of the rest is requested only once.
        #expect(begin(&input, at: 4) == 9 * Self.millisecond)
        #expect(begin(&input, at: 5) == nil)
        #expect(next(&input) == nil)
        input.restIsOver()
        #expect(begin(&input, at: 13) == nil)
        #expect(next(&input) == 1)
        // The connection's message is read in any case, and the next ones wait again.
        #expect(!waits(1, Self.large, in: &input))
        input.note(2 * Self.millisecond)
        input.note(join: 2 * Self.millisecond)
        #expect(next(&input) == nil)
        #expect(waits(4, Self.large, in: &input))
        #expect(begin(&input, at: 15) == 6 * Self.millisecond)
        input.restIsOver()
        #expect(begin(&input, at: 21) == nil)
        #expect([next(&input), next(&input), next(&input)] == [2, 3, 4])
        #expect(next(&input) == nil)
        #expect(!input.someAreDue)
    }

    @Test func `other messages wait for the next turn alone`() {
        var input = LargeInput()
        _ = input.beginTurn(0)
        input.note(3 * Self.millisecond)
        #expect(waits(1, Self.large, in: &input))
        #expect(begin(&input, at: 1) == nil)
        #expect(next(&input) == 1)
    }

    @Test func `the rest has an end, however long somebody's message was read`() {
        var input = LargeInput()
        _ = input.beginTurn(0)
        input.note(60_000 * Self.millisecond)
        input.note(join: 60_000 * Self.millisecond)
        #expect(waits(1, Self.large, in: &input))
        #expect((begin(&input, at: 0) ?? .max) <= 60 * Self.millisecond)
    }
}
