import Diagnostics
import Synchronization
import System
import TestSupport
import Testing

@testable import Net

/// Clock that a test sets.
private final class SetTime: TimeSource {
    private let nanoseconds = Atomic<UInt64>(0)

    init(_ time: UInt64) { set(time) }
    func set(_ time: UInt64) { nanoseconds.store(time, ordering: .relaxed) }
    func monotonicNanoseconds() -> UInt64 { nanoseconds.load(ordering: .relaxed) }
    func unixMicroseconds() -> Int64 { 0 }
}

/// Tests of a loop's clock: when the loop must run, and when it sweeps.
@Suite(.within(minutes: 1)) struct LoopClockTests {
    private static let second: UInt64 = 1_000_000_000

    @Test func `a turn has one time`() {
        let source = SetTime(100)
        let clock = LoopClock(source)
        source.set(200)
        #expect(clock.now == 100 && clock.lookedAt == 0)
        clock.update()
        clock.finishLook()
        #expect(clock.now == 200 && clock.lookedAt == 200)
        #expect(clock.time(after: 50) == 250)
        #expect(clock.time(after: .max) == .max)
    }

    @Test func `the next duty is the earliest timer or sweep`() {
        let clock = LoopClock(SetTime(100))
        #expect(clock.nextDuty == .max)
        clock.requestSweep(at: 5 * Self.second, seats: 1)
        #expect(clock.nextDuty == 5 * Self.second)
        let timer = clock.startTimer(after: 900, token: 7)
        #expect(clock.nextDuty == 1000)
        clock.cancel(timer)
        #expect(clock.nextDuty == 5 * Self.second)
    }

    @Test func `a timer is due from its time on`() {
        let source = SetTime(100)
        let clock = LoopClock(source)
        _ = clock.startTimer(after: 900, token: 7)
        source.set(999)
        clock.update()
        #expect(clock.popDueTimer() == nil)
        source.set(1000)
        clock.update()
        #expect(clock.popDueTimer() == 7)
        #expect(clock.timerCount == 0)
    }

    @Test func `the loop sleeps until just after a duty, from the moment when it asks`() {
        let source = SetTime(0)
        let clock = LoopClock(source)
        source.set(3_000_000)
        #expect(clock.milliseconds(until: 3_000_000) == 0)
        #expect(clock.milliseconds(until: 3_000_001) == 1)
        #expect(clock.milliseconds(until: 5_000_000) == 3)
        #expect(clock.milliseconds(until: .max - 1) == .max)
    }

    @Test func `a sweep is due once, and the next not at once after it`() {
        var sweeps = SweepSchedule()
        sweeps.request(at: 3 * Self.second, seats: 10)
        sweeps.request(at: 4 * Self.second, seats: 10)
        #expect(sweeps.next == 3 * Self.second)
        #expect(sweeps.takeDue(3 * Self.second - 1) == false)
        #expect(sweeps.takeDue(3 * Self.second) == true)
        #expect(sweeps.takeDue(.max - 1) == false)
        sweeps.request(at: 3 * Self.second + 1, seats: 10)
        #expect(sweeps.next == 3 * Self.second + 20_000_000)
    }

    @Test(arguments: [(1000, 20_000_000), (2000, 40_000_000), (1_000_000, 1_000_000_000)] as [(Int, UInt64)])
    func `sweeps of many seats are rarer, up to a second`(seats: Int, gap: UInt64) {
        var sweeps = SweepSchedule()
        sweeps.request(at: Self.second, seats: seats)
        #expect(sweeps.takeDue(Self.second) == true)
        sweeps.request(at: Self.second, seats: seats)
        #expect(sweeps.next == Self.second + gap)
    }

    // MARK: Listeners

    @Test func `a rest ends, and only one refusal in a while is worth a line`() throws {
        let (one, other) = try StreamSocket.pair()
        let epoll = try Epoll()
        var listeners = Listeners([one], duplicating: other)
        defer {
            listeners.close()
            listeners.closeReserve()
            StreamSocket.close(other)
        }
        try listeners.watch(by: epoll)
        #expect(listeners[0] == one && listeners[1] == nil && listeners[-1] == nil)
        #expect(listeners.nextDuty == .max)
        listeners.rest(epoll, now: 100)
        let end = 100 + Limits.acceptRest.nanoseconds
        listeners.resumeIfDue(epoll, now: end - 1)
        #expect(listeners.nextDuty == end)
        listeners.resumeIfDue(epoll, now: end)
        #expect(listeners.nextDuty == .max)
        let interval = Limits.troubleReminderInterval.nanoseconds
        #expect(
            [100, 101, 100 + interval, 101 + interval, 102 + interval].map { listeners.isRefusalWorthALine(now: $0) }
                == [true, false, false, true, false])
    }
}
