import Crypto
import Diagnostics
import System

/// Ends of connections: after a flush, at once, for slowness, for silence.
extension SocketLoop {
    // MARK: By the application

    /// Sends the queued output, then closes; resets the connection if the peer has not taken it in time. Input is no
    /// longer read.
    public func close(_ connection: ConnectionID, afterFlushing within: Duration) {
        guard let seat = table.seat(of: connection), table[seat].stage == .open else { return }
        let hasFallen = table[seat].flags.contains(.hasFallenBehind)
        startClosing(seat, hasFallen ? .fellBehind : .closedHere, within: within.nanoseconds)
    }

    /// Closes the connection at once and drops its queued output.
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
        // The flush finishes the closing, after any output queued before.
        if table[seat].isLive { putInQueue(seat) }
    }

    /// Finishes sending after the kernel has all output. The socket stays open until the peer has seen the end, or the
    /// time is up.
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

    /// Closes the socket at once. The application is told at the end of the turn.
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
            // A list of this turn may still contain the seat, which may then belong to another connection. That is
            // harmless.
            table.giveBack(seat)
            if wasOpened { application.closed(id, reason) }
        }
    }

    // MARK: Too slow

    /// Marks a connection as too slow. `tellFallen` then drops its queue except for the frame in progress, after which
    /// a last message is still valid.
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
            let backlog = backlogs[table[seat].backlog]
            let bytes = backlog.byteCount
            if table[seat].backlog != 0 { backlog.dropWhatWasNotBegun(arena) }
            noteFreed(bytes)
            let id = table.id(of: seat)
            application.fellBehind(id, queuedBytes: bytes)
            close(id, afterFlushing: Limits.farewellLimit)
        }
    }

    /// Drops the largest backlogs, if all blocked connections together hold too much.
    func dropMostBehind() {
        let behind = backlogs.inUse.sorted { $0.byteCount > $1.byteCount }
        for backlog in behind where arena.heldBytes > settings.outboxTotalBytes {
            guard let seat = backlog.seat, table[seat].stage == .open else { continue }
            fall(seat)
            let bytes = backlog.byteCount
            backlog.dropWhatWasNotBegun(arena)
            noteFreed(bytes)
        }
    }

    /// Counts the memory that slow connections held. It goes back to the system, because slow connections are few.
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

    /// Sets the time without received bytes after which the loop calls `wentIdle`, repeatedly. Nil: never.
    public func setIdleLimit(_ limit: Duration?, for connection: ConnectionID) {
        guard let seat = table.seat(of: connection) else { return }
        setIdleLimit(limit?.nanoseconds ?? 0, seat)
    }

    func setIdleLimit(_ nanoseconds: UInt64, _ seat: Int) {
        // Rounded up, because 0 milliseconds would mean no limit.
        let milliseconds = UInt32(clamping: nanoseconds / 1_000_000 + (nanoseconds % 1_000_000 > 0 ? 1 : 0))
        table[seat].idleMilliseconds = milliseconds
        if milliseconds > 0 { needSweep(at: now + UInt64(milliseconds) * 1_000_000) }
    }

    // MARK: The sweep

    /// Time between two sweeps, which check the deadlines of all connections together, because a timer for each would
    /// wake the loop too often. With more connections a sweep takes longer and is rarer, but there is at least one per
    /// second.
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
        for backlog in backlogs.inUse { next = min(next, sweep(backlog)) }
        giveBackIfMuch()
        if next < .max { needSweep(at: next) }
    }

    /// Ends the connection if it is overdue. Returns the time of the next check.
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

    private func sweep(_ backlog: Backlog) -> UInt64 {
        guard let seat = backlog.seat, table[seat].stage == .open else { return .max }
        let (due, isNever) = backlog.takenAt.addingReportingOverflow(settings.outboxAge.nanoseconds)
        if isNever { return .max }
        if due > now { return due }
        fall(seat)
        return .max
    }
}
