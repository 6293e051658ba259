import Diagnostics
import System

/// Ends of connections: after a flush, immediately, for slowness, for overdue input.
extension SocketLoop {
    /// Stops reading, sends the queued output, then closes the connection. Resets the connection if the peer has not
    /// taken the output within the given time.
    public func close(_ connection: ConnectionID, afterFlushing within: Duration) {
        guard let seat = connections.openSeat(of: connection) else { return }
        startClosing(seat, table[seat].has(.hasFallenBehind) ? .fellBehind : .closedHere, within: within)
    }

    /// Resets the connection immediately and drops its queued output.
    public func abort(_ connection: ConnectionID) {
        if let seat = table.seat(of: connection) { connections.end(seat, .closedHere, byReset: true) }
    }

    /// Sets the time for which the peer may send nothing before the loop calls `wentIdle`. The loop repeats the call
    /// each time the limit passes again. Nil means no limit.
    public func setIdleLimit(_ limit: Duration?, for connection: ConnectionID) {
        if let seat = table.seat(of: connection) { connections.setIdleLimit(limit?.nanoseconds ?? 0, seat) }
    }

    func startClosing(_ seat: Int, _ reason: ConnectionEnd, within limit: Duration) {
        connections.startClosing(seat, reason, within: limit)
        // The next flush sends any output queued before, and then finishes the closing.
        if table[seat].isLive { outboxes.putInQueue(seat, &table[seat]) }
    }

    /// Ends the connection in this seat, whose deadline has passed.
    func timeIsUp(_ seat: Int) {
        let reason = table[seat].end
        switch table[seat].stage {
        case .lingering: connections.end(seat, reason, byReset: false)
        case .closing: connections.end(seat, reason == .closedHere ? .closedUnfinished : reason, byReset: true)
        case .handshaking: failHandshake(seat)
        case .open, .free, .ended: break
        }
    }

    func endBroken(_ seat: Int) {
        tellStopsTaking(seat)
        let code = StreamSocket.pendingFailure(of: table[seat].descriptor)
        connections.end(seat, code == 0 ? .byPeer : .failed(code: code), byReset: true)
    }

    /// Tells the application that the peer accepts no more output. All earlier output is with the kernel or queued.
    func tellStopsTaking(_ seat: Int) {
        guard table[seat].stage == .open, table[seat].has(.wasOpened) else { return }
        application.peerStoppedReading(table.id(of: seat))
    }

    // MARK: Reports at the end of a turn

    func tellEnded() {
        while let number = connections.reports.ended.popLast() {
            let seat = Int(number)
            let id = table.id(of: seat)
            let (wasOpened, reason) = (table[seat].has(.wasOpened), table[seat].end)
            connections.release(seat)
            if wasOpened { application.closed(id, reason) }
        }
    }

    func tellFallen() {
        while let number = connections.reports.fallen.popLast() {
            let seat = Int(number)
            guard table[seat].stage == .open, table[seat].has(.hasFallenBehind) else { continue }
            let id = table.id(of: seat)
            application.fellBehind(id, queuedBytes: connections.dropBacklog(seat))
            close(id, afterFlushing: Limits.farewellLimit)
        }
    }

    /// Tells the application which connections are filled and which have drained. The application postpones output for
    /// filled connections and continues when they have drained.
    func tellFilled() {
        while let seat = connections.reports.filled.popLast() {
            guard table[Int(seat)].stage == .open, table[Int(seat)].has(.isFilled) else { continue }
            application.filled(table.id(of: Int(seat)))
        }
        while let seat = connections.reports.drained.popLast() {
            guard table[Int(seat)].stage == .open, !table[Int(seat)].has(.isFilled) else { continue }
            application.drained(table.id(of: Int(seat)))
        }
    }

    /// Closes connections whose incomplete input exceeds the budget. Must not be called during a call to the
    /// application.
    func closeOverBudget() {
        while let number = connections.reports.overfull.popLast() {
            let seat = Int(number)
            // The message may be complete by now, or ended connections may have freed memory of the budget.
            guard connections.hasNoRoom(seat) else { continue }
            metrics.unfinishedInputRefused[.noRoom].add()
            application.hasNoRoom(table.id(of: seat))
            if table[seat].stage == .open { connections.end(seat, .inputTooLong, byReset: true) }
        }
    }

    /// Closes a connection whose message was not complete in time.
    func closeOverdue(_ seat: Int) {
        metrics.unfinishedInputRefused[.tooSlow].add()
        application.tookTooLong(table.id(of: seat))
        if table[seat].stage == .open { connections.end(seat, .inputTooLong, byReset: true) }
    }
}
