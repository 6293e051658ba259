import Diagnostics
import System

/// Input: the loop reads it into the shared buffer, passes it to the application in place, and keeps what the
/// application does not consume.
extension SocketLoop {
    func handle(_ events: Epoll.Events, _ seat: Int) {
        switch table[seat].stage {
        case .open:
            if events.contains(.writable), table[seat].backlog != 0 { sender.resume(seat, now: now) }
            guard table[seat].stage == .open else { return }
            if table[seat].has(.readingIsPaused) {
                if !events.isDisjoint(with: [.failed, .hungUp]) { endBroken(seat) }
            } else if !events.isDisjoint(with: [.readable, .peerFinished, .failed, .hungUp]) {
                read(seat)
            }
        case .closing:
            if !events.isDisjoint(with: [.failed, .hungUp]) { return endBroken(seat) }
            if events.contains(.writable) { sender.resume(seat, now: now) }
        case .lingering:
            // If the hub closed the socket with unread bytes, the kernel would discard output that was sent.
            if !receiver.discard(seat) { connections.end(seat, table[seat].end, byReset: false) }
        case .handshaking: continueHandshake(seat)
        case .free, .ended: break
        }
    }

    private func read(_ seat: Int) {
        switch receiver.receive(seat) {
        case .nothing: break
        case .input(let start, let count):
            // SAFETY: `count` bytes from `start` on stay in place until the next call of the receiver.
            unsafe show(seat, start, count)
        case .finished:
            // The hub still sends its answers to the peer's earlier requests.
            table[seat].set(.peerFinished)
            tellStopsTaking(seat)
            startClosing(seat, .byPeer, within: Limits.farewellLimit)
        case .failed(let reason):
            tellStopsTaking(seat)
            connections.end(seat, reason, byReset: true)
        }
    }

    /// Passes all input of a connection to the application and keeps the bytes that the application does not consume.
    private func show(_ seat: Int, _ start: UnsafeMutableRawPointer, _ count: Int) {
        // SAFETY: as above.
        guard table[seat].input.endsWait(with: count) else { return unsafe keep(seat, start, count, from: 0) }
        let generation = table[seat].generation
        // SAFETY: `count` bytes from `start` on are initialised. The memory stays as long as the call: a connection
        // that ends during it keeps its input until the end of the turn.
        var bytes = unsafe MutableRawSpan(_unsafeStart: start, byteCount: count)
        let consumed = application.received(table.id(of: seat), &bytes)
        precondition(consumed >= 0 && consumed <= count, "an application consumes what it was shown")
        guard table[seat].generation == generation, table[seat].stage == .open else { return }
        unsafe keep(seat, start, count, from: consumed)
    }

    private func keep(_ seat: Int, _ start: UnsafeMutableRawPointer, _ count: Int, from consumed: Int) {
        guard count - consumed < settings.receiveBytes else {
            return connections.end(seat, .inputTooLong, byReset: true)
        }
        // SAFETY: `count` bytes from `start` on are initialised.
        connections.changeInput(seat) { unsafe $0.keep(start, count, from: consumed, now: now) }
    }

    // MARK: Again

    /// Stops reading from the connection until `resumeReading`. The peer notices it only when the kernel's buffers are
    /// full.
    public func pauseReading(_ connection: ConnectionID) {
        guard let seat = connections.openSeat(of: connection) else { return }
        table[seat].set(.readingIsPaused)
        table[seat].activity.leaveInput()
        connections.watch(seat)
    }

    /// Resumes reading from the connection, and passes unconsumed bytes to the application again, even without new
    /// input. Returns false if reading was not paused.
    @discardableResult
    public func resumeReading(_ connection: ConnectionID) -> Bool {
        guard let seat = table.seat(of: connection), table[seat].clear(.readingIsPaused) else { return false }
        connections.watch(seat)
        // The peer had to wait for the hub, so its time to complete the message starts again.
        table[seat].input.restartTime()
        if table[seat].input.count > 0 { receiver.lookAgain(seat) }
        return true
    }

    /// Makes the loop call `received` only when there are `count` bytes of input, or the receive limit is reached.
    public func awaitBytes(_ count: Int, for connection: ConnectionID) {
        if let seat = table.seat(of: connection) { table[seat].input.await(count) }
    }

    /// Passes unconsumed bytes to the application again in the next turn, even without new input.
    public func redeliverInput(_ connection: ConnectionID) {
        if let seat = table.seat(of: connection) { receiver.lookAgain(seat) }
    }

    /// Examines the input of connections that were registered by `Receiver.lookAgain`. No event announces such input.
    func lookAgain() {
        for seat in receiver.takeAgain() where table[seat].clear(.isReadAgain) {
            guard table[seat].stage == .open, !table[seat].has(.readingIsPaused) else { continue }
            // SAFETY: the input is `count` long; `show` keeps what is left of it.
            if let start = unsafe table[seat].input.start { unsafe show(seat, start, Int(table[seat].input.count)) }
            if table[seat].stage == .open, table[seat].session != 0, !table[seat].has(.readingIsPaused) { read(seat) }
        }
    }

    /// Returns a monotonic time, in nanoseconds, after which the peer certainly sent something; 0 if no such time is
    /// known. Input that a stalled loop reads late does not count, because its peer may have disconnected long ago.
    public func certainlySentAfter(_ connection: ConnectionID) -> UInt64 {
        table.seat(of: connection).map { table[$0].activity.certainlySentAfter } ?? 0
    }

    // MARK: Memory for incomplete input

    /// Charges the connection's incomplete input to `budget`. Until this call it is charged to the common budget of all
    /// connections.
    public func bill(_ connection: ConnectionID, to budget: InputBudget) {
        if let seat = table.seat(of: connection) { connections.bill(seat, to: budget) }
    }

    /// Records that the application stores `bytes` bytes of an incomplete message. With `restarting` it is a new
    /// message, whose time starts now.
    public func hold(_ bytes: Int, for connection: ConnectionID, restarting: Bool) {
        guard let seat = table.seat(of: connection) else { return }
        connections.changeInput(seat) { $0.hold(bytes, restarting: restarting, now: now) }
    }
}
