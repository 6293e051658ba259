import Crypto
import Diagnostics
import System

/// How connections end: politely, by force, for being slow, for being silent.
extension SocketLoop {
    // MARK: By the application

    /// Sends what is queued, then closes; by force if the peer has not taken it in time. Nothing is received any more.
    public func close(_ connection: ConnectionID, afterFlushing within: Duration) {
        guard let seat = table.seat(of: connection), table[seat].stage == .open else { return }
        let hasFallen = table[seat].flags.contains(.hasFallenBehind)
        startClosing(seat, hasFallen ? .fellBehind : .closedHere, within: within.nanoseconds)
    }

    /// Closes at once and forgets what was queued.
    public func abort(_ connection: ConnectionID) {
        guard let seat = table.seat(of: connection) else { return }
        end(seat, .closedHere, byReset: true)
    }

    func startClosing(_ seat: Int, _ reason: ConnectionEnd, within nanoseconds: UInt64) {
        table[seat].stage = .closing
        table[seat].end = reason
        table[seat].deadline = max(time(after: nanoseconds), 1)
        needSweep(at: table[seat].deadline)
        watch(seat)
        // The flush goes on from here once nothing is queued before it.
        if table[seat].isLive { putInQueue(seat) }
    }

    /// All is with the kernel. The socket stays until the peer has seen our end, or the time is up.
    func finishClosing(_ seat: Int) {
        if !table[seat].hasSocket || table[seat].flags.contains(.peerFinished) {
            return end(seat, table[seat].end, byReset: false)
        }
        secured(seat)?.session.finish()
        StreamSocket.finishSending(table[seat].descriptor)
        table[seat].stage = .lingering
        watch(seat)
    }

    // MARK: At once

    /// The socket is closed here and now; the application hears of it at the end of the turn.
    func end(_ seat: Int, _ reason: ConnectionEnd, byReset: Bool) {
        guard table[seat].isLive else { return }
        let descriptor = table[seat].descriptor
        releaseSession(seat)
        if byReset { StreamSocket.reset(descriptor) } else { StreamSocket.close(descriptor) }
        releaseBacklog(seat)
        table[seat].firstLink = 0
        table[seat].lastLink = 0
        table[seat].queuedBytes = 0
        table[seat].descriptor = -1
        table[seat].stage = .ended
        table[seat].end = reason
        ended.append(UInt32(seat))
    }

    func tellEnded() {
        while let number = ended.popLast() {
            let seat = Int(number)
            let id = table.id(of: seat)
            let wasOpened = table[seat].flags.contains(.wasOpened)
            let reason = table[seat].end
            hold(nothingOf: seat)
            forgetInput(seat)
            // The seat may still stand in a list of this turn; what is found there is then somebody else's, harmlessly.
            table.giveBack(seat)
            if wasOpened { application.closed(id, reason) }
        }
    }

    // MARK: Too slow

    /// The queue is dropped but for the frame under way, behind which a farewell still makes sense.
    func fall(_ seat: Int) {
        guard table[seat].stage == .open, !table[seat].flags.contains(.hasFallenBehind) else { return }
        table[seat].flags.insert(.hasFallenBehind)
        metrics.connectionsFellBehind.add()
        fallen.append(UInt32(seat))
    }

    func tellFallen() {
        while let number = fallen.popLast() {
            let seat = Int(number)
            guard table[seat].stage == .open, table[seat].flags.contains(.hasFallenBehind) else { continue }
            let backlog = backlogs[Int(table[seat].backlog)]
            let bytes = backlog.byteCount
            if table[seat].backlog != 0 { backlog.dropWhatWasNotBegun(arena) }
            noteFreed(bytes)
            let id = table.id(of: seat)
            application.fellBehind(id, queuedBytes: bytes)
            close(id, afterFlushing: Limits.farewellLimit)
        }
    }

    /// All who are blocked hold too much together: those with the most go first.
    func dropMostBehind() {
        let behind = backlogs.filter { $0.seat != nil }.sorted { $0.byteCount > $1.byteCount }
        for backlog in behind where arena.heldBytes > settings.outboxTotalBytes {
            guard let seat = backlog.seat, table[seat].stage == .open else { continue }
            fall(seat)
            let bytes = backlog.byteCount
            backlog.dropWhatWasNotBegun(arena)
            noteFreed(bytes)
        }
    }

    /// What slow connections held is not kept for the next ones: they are few.
    func noteFreed(_ bytes: Int) {
        freedBytes += bytes
        if freedBytes >= Limits.givenBackBytes { needSweep(at: time(after: Limits.giveBackDelay.nanoseconds)) }
    }

    private func giveBackIfMuch() {
        guard freedBytes >= Limits.givenBackBytes else { return }
        freedBytes = 0
        ProcessMemory.giveBack()
    }

    // MARK: Too silent

    /// After this long without a byte received `wentIdle` is called, and again after as long. nil: never.
    public func setIdleLimit(_ limit: Duration?, for connection: ConnectionID) {
        guard let seat = table.seat(of: connection) else { return }
        setIdleLimit(limit?.nanoseconds ?? 0, seat)
    }

    func setIdleLimit(_ nanoseconds: UInt64, _ seat: Int) {
        // Rounded up, because no milliseconds mean no limit.
        let milliseconds = UInt32(clamping: nanoseconds / 1_000_000 + (nanoseconds % 1_000_000 > 0 ? 1 : 0))
        table[seat].idleMilliseconds = milliseconds
        if milliseconds > 0 { needSweep(at: now + UInt64(milliseconds) * 1_000_000) }
    }

    // MARK: The sweep

    /// Deadlines of single connections are looked after together, now and then: a timer for each would wake the loop for
    /// each. The more there are, the longer a sweep takes and the rarer it is, at least one a second.
    private var sweepGap: UInt64 {
        min(max(UInt64(table.highWater) * 20_000, 20_000_000), 1_000_000_000)
    }

    func needSweep(at time: UInt64) {
        sweepAt = min(sweepAt, max(time, lastSweep &+ sweepGap))
    }

    func sweepIfDue() {
        guard now >= sweepAt else { return }
        lastSweep = now
        sweepAt = .max
        var next = UInt64.max
        for seat in 0..<table.highWater where table[seat].isLive { next = min(next, sweep(seat)) }
        for index in backlogs.indices { next = min(next, sweepBacklog(index)) }
        giveBackIfMuch()
        if next < .max { needSweep(at: next) }
    }

    /// Ends what is overdue; when this connection has to be looked at again.
    private func sweep(_ seat: Int) -> UInt64 {
        let connection = table[seat]
        if connection.deadline != 0 {
            if connection.deadline > now { return connection.deadline }
            timeIsUp(seat)
            return .max
        }
        var due = unfinishedDue(seat)
        if due <= now {
            unfinishedIsDue(seat)
            return .max
        }
        guard connection.idleMilliseconds > 0 else { return due }
        let limit = UInt64(connection.idleMilliseconds) * 1_000_000
        if connection.lastReceived + limit <= now {
            table[seat].lastReceived = now
            application.wentIdle(table.id(of: seat))
            return min(due, now + limit)
        }
        due = min(due, connection.lastReceived + limit)
        return due
    }

    private func timeIsUp(_ seat: Int) {
        switch table[seat].stage {
        case .lingering: end(seat, table[seat].end, byReset: false)
        case .closing:
            let reason = table[seat].end
            end(seat, reason == .closedHere ? .closedUnfinished : reason, byReset: true)
        case .handshaking: failHandshake(seat)
        case .open, .free, .ended: break
        }
    }

    private func sweepBacklog(_ index: Int) -> UInt64 {
        guard let seat = backlogs[index].seat, table[seat].stage == .open else { return .max }
        let (due, isNever) = backlogs[index].takenAt.addingReportingOverflow(settings.outboxAge.nanoseconds)
        if isNever { return .max }
        if due > now { return due }
        fall(seat)
        return .max
    }
}
