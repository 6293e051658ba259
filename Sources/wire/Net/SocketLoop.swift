import Bytes
import Diagnostics
import System

/// Sockets of one thread. The loop reads input and passes it to the application; it sends the application's output at
/// the end of each turn.
///
/// Not Sendable: only `bell` may be used on other threads. A turn consists of: wait, events, timers, the application's
/// `turn()`, one flush for every connection with queued output, and the reports of ended and slow connections.
public final class SocketLoop {
    /// Piece queued for one connection in this turn, linked to the next one.
    struct Link: BitwiseCopyable {
        var piece: UInt32
        var next: UInt32
        var continues: Bool
    }

    public let index: Int
    public let bell: Wake
    let control: LoopControl
    let settings: SocketSettings
    let application: any SocketApplication
    let metrics: ProcessMetrics
    let epoll: Epoll

    // Connections
    let table: ConnectionTable
    /// Ended connections, which the application learns at the end of the turn.
    let ended = PlainArray<UInt32>()
    let fallen = PlainArray<UInt32>()
    /// Connections that take output too slowly, and those that have taken it all since.
    let filled = PlainArray<UInt32>()
    let drained = PlainArray<UInt32>()
    /// Connections whose incomplete input exceeds the budget.
    let sendAway = PlainArray<UInt32>()
    /// Budgets for incomplete input: first the common one, then those named by `bill`.
    var accounts: [InputBudget]
    let readAgain = PlainArray<UInt32>()
    let readBuffer: ReadArea

    // Sending
    let arena = PieceArena()
    let links = PlainArray<Link>(capacity: 1024)
    let queued = PlainArray<UInt32>(capacity: 1024)
    var nextQueued = 0
    /// Seats for which output was queued, recorded after the first `takeSent()`.
    let sentSeats = PlainArray<UInt32>()
    var notesWhoIsSent = false
    /// Most bytes queued for one connection in this turn.
    var largestQueue = 0
    let gather = Gather(ranges: 4096, scratchBytes: 1 << 20)
    /// List that `gather` contains completely; 0 for none.
    var gatheredList: UInt32 = 0
    /// Ring of io_uring; nil if sends are made one by one.
    let ring: SendRing?
    var backlogs = Backlogs()
    /// Bytes of backlogs freed since memory was last given back to the system.
    var freedBytes = 0

    /// Observer of the output for clients without a socket.
    var witness: (any FrameWitness)?

    // TLS
    let tls: TLSSource?
    var sessions = SecureSessions()
    let recordArea = RecordArea()

    // Listening
    var listeners: [Int32]
    /// Descriptor held in reserve. When descriptors run out, it makes room to accept one connection and close it.
    var reserve: Int32?
    var acceptRestsUntil: UInt64 = 0
    var lastRefusalLine: UInt64 = 0

    // Time
    public let time: any TimeSource
    public internal(set) var now: UInt64
    /// Time of the last complete look at events. Input read in this turn arrived later, except from connections with
    /// `mayHaveWaited`.
    var lookedAt: UInt64 = 0
    var timers = TimerHeap()
    var sweepAt = UInt64.max
    var lastSweep: UInt64 = 0

    var counts = SocketCounts()

    /// Makes a loop. Must be called on the loop's own thread, which then calls `run`.
    init(
        index: Int, control: LoopControl, settings: SocketSettings, listeners: [Int32],
        tls: TLSSource?, application: any SocketApplication, metrics: ProcessMetrics
    ) throws(SystemError) {
        self.index = index
        self.control = control
        bell = control.bell
        self.settings = settings
        accounts = [settings.inputBudget]
        self.listeners = listeners
        self.application = application
        self.metrics = metrics
        self.tls = tls
        epoll = try Epoll()
        table = ConnectionTable(capacity: settings.maximumConnections)
        readBuffer = ReadArea(byteCount: Limits.socketReadBytes)
        // Link 0 means "none".
        links.append(Link(piece: 0, next: 0, continues: false))
        time = settings.time
        now = settings.time.monotonicNanoseconds()
        reserve = DescriptorTable.duplicate(control.bell.descriptor)
        ring = try SocketLoop.openRing(settings.backend)
        try epoll.add(bell.descriptor, .readable, key: Key.bell)
        try watchListeners()
    }

    private static func openRing(_ backend: SocketSettings.Backend) throws(SystemError) -> SendRing? {
        guard backend != .epoll else { return nil }
        do throws(SystemError) {
            return try SendRing()
        } catch {
            if backend == .ring { throw error }
            Log.shared.info("sending without io_uring", [LogField.reason(error.reason)])
            return nil
        }
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
        let count = epoll.wait(milliseconds: milliseconds)
        now = time.monotonicNanoseconds()
        for index in 0..<count { handle(epoll.event(index)) }
        lookAgain()
        // If the batch is full, other connections may have events too.
        if count < Epoll.batch { lookedAt = now }
        fireTimers()
        sweepIfDue()
        resumeAcceptingIfDue()
        if control.isDoneAccepting { stopAccepting() }
        isBusy = application.turn()
        settle()
    }

    var isBusy = false

    /// Requests another turn at once. The application needs it to send output caused by connections that ended or fell
    /// behind after its `turn()`.
    public func turnAgain() { isBusy = true }

    var hasMoreToDo: Bool { isBusy || !readAgain.isEmpty }

    /// Time of the next work that needs no event; nil if there is none.
    var nextDuty: UInt64? {
        var until = min(timers.nextDeadline ?? .max, sweepAt)
        if acceptRestsUntil > 0 { until = min(until, acceptRestsUntil) }
        return until < .max ? until : nil
    }

    /// Returns the time to wait for events; nil waits without limit.
    private func restMilliseconds() -> Int32? {
        if hasMoreToDo { return 0 }
        guard let until = nextDuty else { return nil }
        let now = time.monotonicNanoseconds()
        // Rounded up, because waking too early would mean waking twice.
        return until <= now ? 0 : Int32(clamping: (until - now) / 1_000_000 + 1)
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

    private func fireTimers() {
        // A timer that a timer sets waits for the next turn, even with a short delay.
        var left = timers.count
        while left > 0, let token = timers.popDue(now) {
            application.timeIsUp(token)
            left -= 1
        }
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
            if queued.isEmpty { endTurn() }
        } while !queued.isEmpty || !ended.isEmpty || !fallen.isEmpty || !sendAway.isEmpty
        publish()
    }

    private func endTurn() {
        links.removeAll(keeping: 1 << 20)
        links.append(Link(piece: 0, next: 0, continues: false))
        gatheredList = 0
        largestQueue = 0
        arena.endTurn()
        if arena.heldBytes > settings.outboxTotalBytes { dropMostBehind() }
    }

    private func publish() {
        counts.publish(
            to: metrics, open: table.count, blocked: backlogs.count, held: backlogs.count == 0 ? 0 : arena.heldBytes)
    }

    func stop() {
        stopAccepting()
        for seat in 0..<table.highWater where table[seat].isLive { end(seat, .stopped, byReset: false) }
        settle()
        if let reserve { StreamSocket.close(reserve) }
        reserve = nil
    }

    // MARK: Timers

    /// Starts a timer, which calls `timeIsUp` with the token once unless it is cancelled.
    @discardableResult
    public func after(nanoseconds: UInt64, token: UInt64) -> TimerID {
        precondition(timers.count < Limits.maximumTimersPerLoop, "timers are for the few that wait for something")
        return timers.add(deadline: time(after: nanoseconds), token: token)
    }

    /// Returns the time `nanoseconds` after now; `.max`, which means never, if the clock cannot express it.
    func time(after nanoseconds: UInt64) -> UInt64 {
        let (time, overflow) = now.addingReportingOverflow(nanoseconds)
        return overflow ? .max : time
    }

    public func cancel(_ timer: TimerID) { timers.cancel(timer) }
}

/// Key that epoll returns with an event: a connection, the bell, or a listener.
enum Key {
    private static let special: UInt32 = .max
    static let bell = UInt64(special)

    static func listener(index: Int) -> UInt64 { UInt64(index + 1) << 32 | UInt64(special) }
    static func listener(_ key: UInt64) -> Int { Int(key >> 32) - 1 }
    static func connection(_ id: ConnectionID) -> UInt64 { UInt64(id.generation) << 32 | UInt64(id.seat) }

    static func connection(_ key: UInt64) -> ConnectionID? {
        let seat = UInt32(truncatingIfNeeded: key)
        return seat == special ? nil : ConnectionID(seat: seat, generation: UInt32(truncatingIfNeeded: key >> 32))
    }
}

/// Buffer into which the loop reads all its connections, one after the other.
@safe
final class ReadArea {
    let base: UnsafeMutableRawPointer
    let byteCount: Int

    init(byteCount: Int) {
        // SAFETY: freed in `deinit`.
        unsafe base = .allocate(byteCount: byteCount, alignment: 64)
        self.byteCount = byteCount
    }

    deinit {
        // SAFETY: this area's own allocation.
        unsafe base.deallocate()
    }
}
