import Diagnostics
import System

/// Event loop for the sockets of one thread. It reads input and passes it to the application; it sends the
/// application's output at the end of each turn.
///
/// Not Sendable: other threads may use only `bell`. A turn consists of: wait, events, timers, the application's
/// `turn()`, one flush for every connection with queued output, and reports of ended and slow connections.
///
/// Helper objects keep the state and decide. The loop passes them what happens, and makes all calls to the application.
public final class SocketLoop {
    let control: LoopControl
    let settings: SocketSettings
    let application: any SocketApplication
    let clock: LoopClock
    let connections: Connections
    let table: ConnectionTable
    let outboxes = Outboxes()
    let sender: Sender
    let receiver: Receiver
    let tls: TLSSource?
    let metrics: ProcessMetrics
    var listeners: Listeners
    var counts = SocketCounts()
    /// Receiver of the output for simulated connections, which have no socket; nil if there are none.
    var witness: (any FrameWitness)?

    public var index: Int { control.index }
    public var bell: Wake { control.bell }
    public var time: any TimeSource { clock.source }
    public var now: UInt64 { clock.now }

    /// Makes a loop. Must be called on the loop's own thread, which then calls `run`.
    init(
        control: LoopControl, settings: SocketSettings, listeners: [Int32], tls: TLSSource?,
        application: any SocketApplication, metrics: ProcessMetrics
    ) throws(SystemError) {
        self.control = control
        self.settings = settings
        self.application = application
        self.tls = tls
        self.metrics = metrics
        clock = LoopClock(settings.time)
        connections = try Connections(settings, clock, outboxes, metrics)
        table = connections.table
        receiver = Receiver(connections, clock)
        sender = Sender(connections, outboxes, ring: try SendRing.open(for: settings.backend))
        self.listeners = Listeners(listeners, duplicating: control.bell.descriptor)
        try connections.epoll.add(bell.descriptor, .readable, key: Key.bell)
        try self.listeners.watch(by: connections.epoll)
    }

    // MARK: The turn

    func run() {
        application.started(on: self)
        settle()
        while !control.isStopping { turn(atMost: restMilliseconds()) }
        stop()
    }

    /// Runs one turn. Waits at most `milliseconds` for an event; nil means without limit.
    func turn(atMost milliseconds: Int32?) {
        let count = connections.epoll.wait(milliseconds: milliseconds)
        clock.update()
        for index in 0..<count { handle(connections.epoll.event(index)) }
        lookAgain()
        // If the batch of events is full, other connections may have events too.
        if count < Epoll.batch { clock.finishLook() }
        fireTimers()
        if clock.takeDueSweep() { sweep() }
        listeners.resumeIfDue(connections.epoll, now: now)
        if control.isDoneAccepting { stopAccepting() }
        clock.setBusy(application.turn())
        settle()
    }

    /// Makes the next turn begin without waiting. The application calls it to send output for connections that ended or
    /// fell behind after its `turn()`.
    public func turnAgain() { clock.setBusy(true) }

    var hasMoreToDo: Bool { clock.isBusy || receiver.hasMore }

    /// Monotonic time, in nanoseconds, at which a timer or sweep is next due; nil if there is none.
    var nextDuty: UInt64? {
        let duty = min(clock.nextDuty, listeners.nextDuty)
        return duty < .max ? duty : nil
    }

    /// Returns the milliseconds for which the loop may wait for events; nil means without limit.
    private func restMilliseconds() -> Int32? {
        hasMoreToDo ? 0 : nextDuty.map { clock.milliseconds(until: $0) }
    }

    private func handle(_ event: (key: UInt64, events: Epoll.Events)) {
        guard let id = Key.connection(event.key) else {
            return event.key == Key.bell ? answerBell() : acceptBatch(Key.listener(event.key))
        }
        if let seat = table.seat(of: id) { handle(event.events, seat) }
    }

    private func answerBell() {
        bell.clear()
        application.drainMailbox()
    }

    /// Finishes a turn: sends queued bytes, and reports connections that fell behind or ended. The application may
    /// queue output during a report, so this repeats until nothing is left.
    func settle() {
        repeat {
            flush()
            tellFallen()
            tellFilled()
            closeOverBudget()
            tellEnded()
            if outboxes.isEmpty { endTurn() }
        } while !outboxes.isEmpty || connections.reports.areLeft
        let blocked = connections.backlogs.count
        counts.publish(
            to: metrics, received: receiver.takeReceivedBytes(), sent: sender.takeSentBytes(), open: table.count,
            blocked: blocked, held: blocked == 0 ? 0 : outboxes.arena.heldBytes)
    }

    private func endTurn() {
        counts.add(sentPieces: outboxes.endTurn())
        sender.endTurn()
        connections.dropLargestBacklogs()
    }

    func stop() {
        stopAccepting()
        for seat in 0..<table.highWater where table[seat].isLive {
            connections.end(seat, .stopped, byReset: false)
        }
        settle()
        listeners.closeReserve()
    }

    // MARK: Times

    /// Starts a timer. When it expires, the loop calls `timeIsUp` once with the token, unless the timer was cancelled.
    @discardableResult
    public func after(nanoseconds: UInt64, token: UInt64) -> TimerID {
        clock.startTimer(after: nanoseconds, token: token)
    }

    public func cancel(_ timer: TimerID) { clock.cancel(timer) }

    private func fireTimers() {
        // A timer that is started by an expiring timer waits for the next turn, even with a short delay.
        var left = clock.timerCount
        while left > 0, let token = clock.popDueTimer() {
            application.timeIsUp(token)
            left -= 1
        }
    }

    /// Ends connections that are overdue, and tells the application which peers are silent.
    private func sweep() {
        var next = UInt64.max
        for seat in 0..<table.highWater where table[seat].isLive { next = min(next, sweep(seat)) }
        next = min(next, connections.sweepBacklogs())
        if next < .max { connections.requestSweep(at: next) }
    }

    /// Checks one connection for overdue work. Returns the monotonic time, in nanoseconds, of the next check.
    private func sweep(_ seat: Int) -> UInt64 {
        switch table[seat].sweep(at: now, unfinishedLimit: settings.unfinishedLimit.nanoseconds) {
        case .nothing(let due): return due
        case .deadlineIsPast: timeIsUp(seat)
        case .inputIsOverdue: closeOverdue(seat)
        case .silence(let next):
            application.wentIdle(table.id(of: seat))
            return next
        }
        return .max
    }
}
