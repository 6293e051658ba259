import Crypto
import Diagnostics
import System

/// Connections of one loop and their resources: sockets, TLS sessions, backlogs and the memory of their input.
///
/// Changes the connections' stages, and collects reports for the application. The loop delivers the reports at the end
/// of the turn; this class never calls the application.
final class Connections {
    let table: ConnectionTable
    let epoll: Epoll
    let reports = PendingReports()
    private let settings: SocketSettings
    private let clock: LoopClock
    private let outboxes: Outboxes
    private let metrics: ProcessMetrics
    private(set) var sessions = SecureSessions()
    private(set) var backlogs: Backlogs
    private var accounts: InputAccounts

    init(
        _ settings: SocketSettings, _ clock: LoopClock, _ outboxes: Outboxes, _ metrics: ProcessMetrics
    ) throws(SystemError) {
        table = ConnectionTable(capacity: settings.maximumConnections)
        epoll = try Epoll()
        self.settings = settings
        self.clock = clock
        self.outboxes = outboxes
        self.metrics = metrics
        backlogs = Backlogs(settings)
        accounts = InputAccounts(common: settings.inputBudget, metrics)
    }

    /// Returns the seat of a connection that may still queue output; nil if the connection may not.
    @inline(__always)
    func openSeat(of connection: ConnectionID) -> Int? {
        guard let seat = table.seat(of: connection), table[seat].stage == .open else { return nil }
        return seat
    }

    func secured(_ seat: Int) -> Secured? {
        table[seat].session == 0 ? nil : sessions[table[seat].session]
    }

    // MARK: Events

    /// Starts to watch the socket of a new connection with epoll.
    func startWatching(_ seat: Int) throws(SystemError) {
        let events: Epoll.Events = [.readable, .peerFinished]
        try epoll.add(table[seat].descriptor, events, key: Key.connection(table.id(of: seat)))
        _ = table[seat].isNewlyWatched(for: events)
    }

    /// Makes epoll watch for the events that matter in the present stage of the connection in this seat.
    func watch(_ seat: Int) {
        if let events = table[seat].wantedEvents { watch(seat, for: events) }
    }

    func watch(_ seat: Int, for events: Epoll.Events) {
        guard table[seat].isNewlyWatched(for: events) else { return }
        do throws(SystemError) {
            try epoll.change(table[seat].descriptor, events, key: Key.connection(table.id(of: seat)))
        } catch {
            end(seat, .failed(code: error.code), byReset: true)
        }
    }

    // MARK: Stages

    func startHandshake(_ seat: Int, _ secured: Secured) {
        let deadline = deadline(within: settings.handshakeLimit)
        table[seat].startHandshake(session: sessions.add(secured), deadline: deadline)
    }

    func finishHandshake(_ seat: Int) {
        table[seat].finishHandshake(now: clock.now)
        watch(seat)
    }

    func startClosing(_ seat: Int, _ reason: ConnectionEnd, within limit: Duration) {
        table[seat].startClosing(reason, deadline: deadline(within: limit))
        watch(seat)
    }

    /// Tells the peer that the hub has finished sending, once the kernel has all output. The socket stays open until
    /// the peer has closed too, or until the deadline.
    func finishClosing(_ seat: Int) {
        if !table[seat].hasSocket || table[seat].has(.peerFinished) {
            return end(seat, table[seat].end, byReset: false)
        }
        secured(seat)?.session.finish()
        StreamSocket.finishSending(table[seat].descriptor)
        table[seat].startLingering()
        watch(seat)
    }

    /// Closes the connection's socket immediately. The loop tells the application at the end of the turn.
    func end(_ seat: Int, _ reason: ConnectionEnd, byReset: Bool) {
        guard table[seat].isLive else { return }
        let descriptor = table[seat].descriptor
        sessions.remove(table[seat].takeSession())
        if byReset { StreamSocket.reset(descriptor) } else { StreamSocket.close(descriptor) }
        releaseBacklog(seat)
        table[seat].end(reason)
        reports.ended.append(UInt32(seat))
    }

    /// Frees the seat and the input of an ended connection.
    func release(_ seat: Int) {
        changeInput(seat) { input in
            input.hold(0, restarting: false, now: clock.now)
            input.forget(now: clock.now)
        }
        // A list of this turn may still contain the seat, and another connection may take the seat meanwhile. That is
        // harmless.
        table.giveBack(seat)
    }

    // MARK: Backlogs

    /// Moves the unsent output of a connection, whose socket is full, to a backlog.
    func block(_ seat: Int, _ rest: UInt32, skipping sent: Int, committed: Int = 0) {
        table[seat].block(by: backlogs.take(seat: seat, committed: committed, at: clock.now))
        addToBacklog(seat, rest, skipping: sent)
        requestSweep(at: clock.time(after: settings.outboxAge.nanoseconds))
        watch(seat)
    }

    func addToBacklog(_ seat: Int, _ list: UInt32, skipping sent: Int) {
        let backlog = backlogs[table[seat].backlog]
        outboxes.move(list, skipping: sent, to: backlog)
        switch backlogs.size(of: backlog) {
        case .small: break
        case .filled:
            table[seat].set(.isFilled)
            reports.filled.append(UInt32(seat))
        case .tooLarge: fall(seat)
        }
    }

    /// Records that the socket has taken the connection's whole backlog.
    func unblock(_ seat: Int) {
        releaseBacklog(seat)
        watch(seat)
        if table[seat].clear(.isFilled) { reports.drained.append(UInt32(seat)) }
    }

    /// Marks a connection as too slow. The loop then drops its queued output except the rest of a partly sent frame, so
    /// that a last message can still follow.
    func fall(_ seat: Int) {
        guard table[seat].stage == .open, table[seat].set(.hasFallenBehind) else { return }
        metrics.connectionsFellBehind.add()
        reports.fallen.append(UInt32(seat))
    }

    /// Drops the queued frames of which no byte was sent. Returns the number of bytes that were queued.
    func dropBacklog(_ seat: Int) -> Int {
        let index = table[seat].backlog
        guard index != 0 else { return 0 }
        defer { requestGivingBack() }
        return backlogs.drop(index, outboxes.arena)
    }

    /// Drops the largest backlogs until all blocked connections of the loop together hold no more than
    /// `outboxTotalBytes`.
    func dropLargestBacklogs() {
        guard outboxes.arena.heldBytes > settings.outboxTotalBytes else { return }
        let behind = backlogs.inUse.sorted { $0.byteCount > $1.byteCount }
        for backlog in behind where outboxes.arena.heldBytes > settings.outboxTotalBytes {
            guard let seat = backlog.seat, table[seat].stage == .open else { continue }
            fall(seat)
            _ = dropBacklog(seat)
        }
    }

    private func releaseBacklog(_ seat: Int) {
        backlogs.release(table[seat].takeBacklog(), outboxes.arena)
        requestGivingBack()
    }

    /// Requests a sweep that returns memory to the system, if ended or dropped backlogs have freed much.
    private func requestGivingBack() {
        if backlogs.haveFreedMuch { requestSweep(at: clock.time(after: Limits.giveBackDelay.nanoseconds)) }
    }

    // MARK: Memory for incomplete input

    func bill(_ seat: Int, to budget: InputBudget) { accounts.bill(&table[seat], to: budget) }

    /// Changes a connection's kept input and charges the difference in bytes to its budget. If the budget has no room,
    /// adds the connection to the reports.
    @inline(__always)
    func changeInput(_ seat: Int, _ change: (inout KeptInput) -> Void) {
        let before = table[seat].input
        change(&table[seat].input)
        let after = table[seat].input
        if after.unfinishedSince != 0, after.unfinishedSince != before.unfinishedSince {
            requestSweep(at: after.dueTime(limit: settings.unfinishedLimit.nanoseconds))
        }
        let (bytesBefore, bytes) = (before.chargedBytes, after.chargedBytes)
        accounts.charge(table[seat].account, from: bytesBefore, to: bytes)
        if bytes > bytesBefore, hasNoRoom(seat) { reports.overfull.append(UInt32(seat)) }
    }

    /// True if an open connection must be closed because its incomplete input exceeds the budget.
    func hasNoRoom(_ seat: Int) -> Bool {
        table[seat].stage == .open && accounts.haveNoRoom(for: table[seat])
    }

    // MARK: Times

    func requestSweep(at time: UInt64) { clock.requestSweep(at: time, seats: table.highWater) }

    func setIdleLimit(_ nanoseconds: UInt64, _ seat: Int) {
        let limit = table[seat].activity.setIdleLimit(nanoseconds: nanoseconds)
        if limit > 0 { requestSweep(at: clock.now + limit) }
    }

    /// Returns the monotonic time, in nanoseconds, that lies `limit` after now, and requests a sweep for it. Never
    /// returns 0.
    private func deadline(within limit: Duration) -> UInt64 {
        let deadline = max(clock.time(after: limit.nanoseconds), 1)
        requestSweep(at: deadline)
        return deadline
    }

    /// Marks as too slow those connections that have taken nothing for `outboxAge`. Returns freed memory to the system.
    /// Returns the monotonic time, in nanoseconds, of the next check.
    func sweepBacklogs() -> UInt64 {
        var next = UInt64.max
        for backlog in backlogs.inUse {
            guard let seat = backlog.seat, table[seat].stage == .open else { continue }
            let due = backlogs.dueTime(of: backlog)
            if due > clock.now { next = min(next, due) } else { fall(seat) }
        }
        if backlogs.takeFreed() { ProcessMemory.giveBack() }
        return next
    }
}
