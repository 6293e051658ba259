import Diagnostics
import System

/// Clock of one loop: the time of the present turn, and the times at which the loop must run without an event. All
/// times are monotonic, in nanoseconds.
final class LoopClock {
    let source: any TimeSource
    /// Time at which the present turn began to handle events.
    private(set) var now: UInt64
    /// Time of the last turn that saw all pending events. Input read in this turn arrived later, unless the loop had
    /// left it in the socket.
    private(set) var lookedAt: UInt64 = 0
    private var timers = TimerHeap()
    private var sweeps = SweepSchedule()
    /// True if the next turn follows without waiting for an event.
    private(set) var isBusy = false

    init(_ source: any TimeSource) {
        self.source = source
        now = source.monotonicNanoseconds()
    }

    func update() { now = source.monotonicNanoseconds() }

    /// Sets whether the next turn follows without waiting for an event.
    func setBusy(_ isBusy: Bool) { self.isBusy = isBusy }

    /// Records that this turn saw all pending events.
    func finishLook() { lookedAt = now }

    /// Returns the time `nanoseconds` after now; `.max`, which means never, if the sum does not fit 64 bits.
    func time(after nanoseconds: UInt64) -> UInt64 {
        let (time, overflow) = now.addingReportingOverflow(nanoseconds)
        return overflow ? .max : time
    }

    /// Earliest time at which a timer or sweep is due; `.max` if there is none.
    var nextDuty: UInt64 { min(timers.nextDeadline ?? .max, sweeps.next) }

    /// Returns the number of milliseconds from now until a time. Reads the clock again, because `now` is the time at
    /// which the turn began.
    func milliseconds(until time: UInt64) -> Int32 {
        let now = source.monotonicNanoseconds()
        // Rounded up: a loop that wakes too early would have to wait a second time.
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

    /// True if a sweep is due. The caller then makes the sweep and requests the next one.
    func takeDueSweep() -> Bool { sweeps.takeDue(now) }
}

/// Times of the sweeps. A sweep checks the deadlines of all connections together, because one timer per connection
/// would wake the loop too often.
struct SweepSchedule {
    /// Monotonic time, in nanoseconds, of the next sweep; `.max` for none.
    private(set) var next = UInt64.max
    /// Monotonic time, in nanoseconds, of the last sweep (check of all connections' deadlines); 0 before the first.
    private var last: UInt64 = 0

    /// Requests a sweep at a time, or later if the last sweep was too recent. With more seats the minimal distance
    /// between two sweeps grows, up to one second.
    mutating func request(at time: UInt64, seats: Int) {
        let gap = min(max(UInt64(seats) * 20_000, 20_000_000), 1_000_000_000)
        next = min(next, max(time, last &+ gap))
    }

    /// True if a sweep is due. The caller then makes the sweep and requests the next one.
    mutating func takeDue(_ now: UInt64) -> Bool {
        guard now >= next else { return false }
        last = now
        next = .max
        return true
    }
}

extension Duration {
    /// Duration in whole nanoseconds, limited to the range of `UInt64`: a negative duration gives 0.
    var nanoseconds: UInt64 {
        let (seconds, attoseconds) = components
        guard seconds >= 0, attoseconds >= 0 else { return 0 }
        let (whole, overflow) = UInt64(seconds).multipliedReportingOverflow(by: 1_000_000_000)
        return overflow ? .max : whole &+ UInt64(attoseconds / 1_000_000_000)
    }
}
