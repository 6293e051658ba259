import Diagnostics
import System

/// Sockets of one thread. The loop reads input and passes it to the application; it sends the application's output at
/// the end of each turn.
///
/// Not Sendable: only `bell` may be used on other threads. A turn consists of: wait, events, timers, the application's
/// `turn()`, one flush for every connection with queued output, and the reports of ended and slow connections.
///
/// The loop's parts keep the state and decide; the loop tells them what happens, and makes all calls to the application.
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
    /// Observer of the output for clients without a socket.
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

    /// Runs one turn. Waits at most `milliseconds` for an event; nil waits without limit.
    func turn(atMost milliseconds: Int32?) {
        let count = connections.epoll.wait(milliseconds: milliseconds)
        clock.update()
        for index in 0..<count { handle(connections.epoll.event(index)) }
        lookAgain()
        // If the batch is full, other connections may have events too.
        if count < Epoll.batch { clock.finishLook() }
        fireTimers()
        if clock.takeDueSweep() { sweep() }
        listeners.resumeIfDue(connections.epoll, now: now)
        if control.isDoneAccepting { stopAccepting() }
        clock.setBusy(application.turn())
        settle()
    }

    /// Requests another turn at once. The application needs it to send output caused by connections that ended or fell
    /// behind after its `turn()`.
    public func turnAgain() { clock.setBusy(true) }

    var hasMoreToDo: Bool { clock.isBusy || receiver.hasMore }

    /// Time of the next work that needs no event; nil if there is none.
    var nextDuty: UInt64? {
        let duty = min(clock.nextDuty, listeners.nextDuty)
        return duty < .max ? duty : nil
    }

    /// Returns the time to wait for events; nil waits without limit.
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
        application.rung()
    }

    /// Finishes a turn: sends queued bytes and reports connections that fell behind or ended. The reports may queue
    /// more output, so this repeats until nothing is left.
    func settle() {
        repeat {
            flush()
            tellFallen()
            tellFilled()
            sendOverfullAway()
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
        connections.dropMostBehind()
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

    /// Starts a timer, which calls `timeIsUp` with the token once unless it is cancelled.
    @discardableResult
    public func after(nanoseconds: UInt64, token: UInt64) -> TimerID {
        clock.startTimer(after: nanoseconds, token: token)
    }

    public func cancel(_ timer: TimerID) { clock.cancel(timer) }

    private func fireTimers() {
        // A timer that a timer sets waits for the next turn, even with a short delay.
        var left = clock.timerCount
        while left > 0, let token = clock.popDueTimer() {
            application.timeIsUp(token)
            left -= 1
        }
    }

    /// Ends connections that are overdue, and tells the application which are silent.
    private func sweep() {
        var next = UInt64.max
        for seat in 0..<table.highWater where table[seat].isLive { next = min(next, sweep(seat)) }
        next = min(next, connections.sweepBacklogs())
        if next < .max { connections.requestSweep(at: next) }
    }

    /// Checks one connection. Returns the time of the next check.
    private func sweep(_ seat: Int) -> UInt64 {
        switch table[seat].sweep(at: now, unfinishedLimit: settings.unfinishedLimit.nanoseconds) {
        case .nothing(let due): return due
        case .deadlineIsPast: timeIsUp(seat)
        case .inputIsOverdue: sendUnfinishedAway(seat)
        case .silence(let next):
            application.wentIdle(table.id(of: seat))
            return next
        }
        return .max
    }
}
