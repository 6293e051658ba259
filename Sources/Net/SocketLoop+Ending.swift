import Crypto
import Diagnostics
import System

/// How connections end: politely, by force, for being slow, for being silent.
extension SocketLoop {
    // MARK: By the application

    /// Sends what is queued, then closes; by force if the peer has not taken it in time. Nothing is received any more.
    public func close(_ connection: ConnectionID, afterFlushing within: Duration) {
        guard let slot = table.slot(of: connection), table[slot].stage == .open else { return }
        let hasFallen = table[slot].flags.contains(.hasFallenBehind)
        startClosing(slot, hasFallen ? .fellBehind : .closedHere, within: within.nanoseconds)
    }

    /// Closes at once and forgets what was queued.
    public func abort(_ connection: ConnectionID) {
        guard let slot = table.slot(of: connection) else { return }
        end(slot, .closedHere, byReset: true)
    }

    func startClosing(_ slot: Int, _ reason: ConnectionEnd, within nanoseconds: UInt64) {
        table[slot].stage = .closing
        table[slot].end = reason
        table[slot].deadline = max(time(after: nanoseconds), 1)
        needSweep(at: table[slot].deadline)
        watch(slot)
        // The flush goes on from here once nothing is queued before it.
        if table[slot].isLive { putInQueue(slot) }
    }

    /// All is with the kernel. The socket stays until the peer has seen our end, or the time is up.
    func finishClosing(_ slot: Int) {
        if !table[slot].hasSocket || table[slot].flags.contains(.peerFinished) {
            return end(slot, table[slot].end, byReset: false)
        }
        secured(slot)?.session.finish()
        StreamSocket.finishSending(table[slot].descriptor)
        table[slot].stage = .lingering
        watch(slot)
    }

    // MARK: At once

    /// The socket is closed here and now; the application hears of it at the end of the turn.
    func end(_ slot: Int, _ reason: ConnectionEnd, byReset: Bool) {
        guard table[slot].isLive else { return }
        let descriptor = table[slot].descriptor
        releaseSession(slot)
        if byReset { StreamSocket.reset(descriptor) } else { StreamSocket.close(descriptor) }
        releaseBacklog(slot)
        table[slot].firstLink = 0
        table[slot].lastLink = 0
        table[slot].queuedBytes = 0
        table[slot].descriptor = -1
        table[slot].stage = .ended
        table[slot].end = reason
        ended.append(UInt32(slot))
    }

    func tellEnded() {
        while let number = ended.popLast() {
            let slot = Int(number)
            let id = table.id(of: slot)
            let wasOpened = table[slot].flags.contains(.wasOpened)
            let reason = table[slot].end
            hold(nothingOf: slot)
            forgetInput(slot)
            // The slot may still stand in a list of this turn; what is found there is then somebody else's, harmlessly.
            table.giveBack(slot)
            if wasOpened { application.closed(id, reason) }
        }
    }

    // MARK: Too slow

    /// The queue is dropped but for the frame under way, behind which a farewell still makes sense.
    func fall(_ slot: Int) {
        guard table[slot].stage == .open, !table[slot].flags.contains(.hasFallenBehind) else { return }
        table[slot].flags.insert(.hasFallenBehind)
        metrics.connectionsFellBehind.add()
        fallen.append(UInt32(slot))
    }

    func tellFallen() {
        while let number = fallen.popLast() {
            let slot = Int(number)
            guard table[slot].stage == .open, table[slot].flags.contains(.hasFallenBehind) else { continue }
            let backlog = backlogs[Int(table[slot].backlog)]
            let bytes = backlog.byteCount
            if table[slot].backlog != 0 { backlog.dropWhatWasNotBegun(arena) }
            noteFreed(bytes)
            let id = table.id(of: slot)
            application.fellBehind(id, queuedBytes: bytes)
            close(id, afterFlushing: Limits.farewellLimit)
        }
    }

    /// All who are blocked hold too much together: those with the most go first.
    func dropMostBehind() {
        let behind = backlogs.filter { $0.slot != nil }.sorted { $0.byteCount > $1.byteCount }
        for backlog in behind where arena.heldBytes > settings.outboxTotalBytes {
            guard let slot = backlog.slot, table[slot].stage == .open else { continue }
            fall(slot)
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
        guard let slot = table.slot(of: connection) else { return }
        setIdleLimit(limit?.nanoseconds ?? 0, slot)
    }

    func setIdleLimit(_ nanoseconds: UInt64, _ slot: Int) {
        // Rounded up, because no milliseconds mean no limit.
        let milliseconds = UInt32(clamping: nanoseconds / 1_000_000 + (nanoseconds % 1_000_000 > 0 ? 1 : 0))
        table[slot].idleMilliseconds = milliseconds
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
        for slot in 0..<table.highWater where table[slot].isLive { next = min(next, sweep(slot)) }
        for index in backlogs.indices { next = min(next, sweepBacklog(index)) }
        giveBackIfMuch()
        if next < .max { needSweep(at: next) }
    }

    /// Ends what is overdue; when this connection has to be looked at again.
    private func sweep(_ slot: Int) -> UInt64 {
        let connection = table[slot]
        if connection.deadline != 0 {
            if connection.deadline > now { return connection.deadline }
            timeIsUp(slot)
            return .max
        }
        var due = unfinishedDue(slot)
        if due <= now {
            unfinishedIsDue(slot)
            return .max
        }
        guard connection.idleMilliseconds > 0 else { return due }
        let limit = UInt64(connection.idleMilliseconds) * 1_000_000
        if connection.lastReceived + limit <= now {
            table[slot].lastReceived = now
            application.wentIdle(table.id(of: slot))
            return min(due, now + limit)
        }
        due = min(due, connection.lastReceived + limit)
        return due
    }

    private func timeIsUp(_ slot: Int) {
        switch table[slot].stage {
        case .lingering: end(slot, table[slot].end, byReset: false)
        case .closing:
            let reason = table[slot].end
            end(slot, reason == .closedHere ? .closedUnfinished : reason, byReset: true)
        case .handshaking: failHandshake(slot)
        case .open, .free, .ended: break
        }
    }

    private func sweepBacklog(_ index: Int) -> UInt64 {
        guard let slot = backlogs[index].slot, table[slot].stage == .open, let oldest = backlogs[index].oldest else {
            return .max
        }
        let (due, isNever) = oldest.addingReportingOverflow(settings.outboxAge.nanoseconds)
        if isNever { return .max }
        if due > now { return due }
        fall(slot)
        return .max
    }
}
