import Diagnostics
import System

/// Time of one loop: the present turn's, and the times at which the loop must run without an event.
final class LoopClock {
    let source: any TimeSource
    private(set) var now: UInt64
    /// Time of the last complete look at events. Input read in this turn arrived later, except what may have waited.
    private(set) var lookedAt: UInt64 = 0
    private var timers = TimerHeap()
    private var sweeps = SweepSchedule()
    /// True if the next turn follows at once.
    private(set) var isBusy = false

    init(_ source: any TimeSource) {
        self.source = source
        now = source.monotonicNanoseconds()
    }

    func update() { now = source.monotonicNanoseconds() }

    /// Decides whether the next turn follows at once.
    func setBusy(_ isBusy: Bool) { self.isBusy = isBusy }

    /// Records that the events of this turn were all that there were.
    func finishLook() { lookedAt = now }

    /// Returns the time `nanoseconds` after now; `.max`, which means never, if the clock cannot express it.
    func time(after nanoseconds: UInt64) -> UInt64 {
        let (time, overflow) = now.addingReportingOverflow(nanoseconds)
        return overflow ? .max : time
    }

    /// Earliest time of a timer or sweep; `.max` if there is none.
    var nextDuty: UInt64 { min(timers.nextDeadline ?? .max, sweeps.next) }

    /// Returns the milliseconds from this moment, which may be later than `now`, until a time.
    func milliseconds(until time: UInt64) -> Int32 {
        let now = source.monotonicNanoseconds()
        // Rounded up, because waking too early would mean waking twice.
        return time <= now ? 0 : Int32(clamping: (time - now) / 1_000_000 + 1)
    }

    // MARK: Timers and sweeps

    var timerCount: Int { timers.count }

    func startTimer(after nanoseconds: UInt64, token: UInt64) -> TimerID {
        precondition(timers.count < Limits.maximumTimersPerLoop, "timers are for the few that wait for something")
        return timers.add(deadline: time(after: nanoseconds), token: token)
    }

    func cancel(_ timer: TimerID) { timers.cancel(timer) }

    /// Removes the earliest timer that is due and returns its token; nil if none is due.
    func popDueTimer() -> UInt64? { timers.popDue(now) }

    func requestSweep(at time: UInt64, seats: Int) { sweeps.request(at: time, seats: seats) }

    /// True if a sweep is due. The caller makes it then, and requests the next.
    func takeDueSweep() -> Bool { sweeps.takeDue(now) }
}

/// Times of the sweeps, which check the deadlines of all connections together, because a timer for each would wake the
/// loop too often.
struct SweepSchedule {
    /// Time of the next sweep; `.max` for none.
    private(set) var next = UInt64.max
    private var last: UInt64 = 0

    /// Requests a sweep at a time, or later if the last sweep was shortly before. With more seats a sweep takes longer
    /// and is rarer, but there is at least one per second.
    mutating func request(at time: UInt64, seats: Int) {
        let gap = min(max(UInt64(seats) * 20_000, 20_000_000), 1_000_000_000)
        next = min(next, max(time, last &+ gap))
    }

    /// True if a sweep is due. The caller makes it then, and requests the next.
    mutating func takeDue(_ now: UInt64) -> Bool {
        guard now >= next else { return false }
        last = now
        next = .max
        return true
    }
}

extension Duration {
    /// Duration in whole nanoseconds, limited to the range from zero to 64 bits.
    var nanoseconds: UInt64 {
        let (seconds, attoseconds) = components
        guard seconds >= 0, attoseconds >= 0 else { return 0 }
        let (whole, overflow) = UInt64(seconds).multipliedReportingOverflow(by: 1_000_000_000)
        return overflow ? .max : whole &+ UInt64(attoseconds / 1_000_000_000)
    }
}
