import Bytes
import Diagnostics
import System

/// Output: queued as pieces, and passed to the kernel once per connection and turn.
extension SocketLoop {
    // MARK: Queueing

    /// Number of bytes of all pieces that were added in this turn.
    public var turnPieceBytes: Int { outboxes.arena.turnBytes }

    /// Bytes that may be queued at once for one client, for example the past messages of a topic. A part of the outbox
    /// remains for what follows.
    public var bytesAtOnce: Int { settings.outboxBytes / 4 }

    /// True if some connection has so much output queued in this turn that the application should queue no more. A turn
    /// may exceed the size of a filled backlog by this amount.
    public var hasQueuedEnough: Bool { outboxes.largestBytes > settings.outboxBytes / 8 }

    /// Stores bytes that many connections can share. The piece is valid until the end of this turn.
    public func share(_ bytes: RawSpan) -> Piece { outboxes.arena.add(bytes) }

    /// Stores three parts, which lie in different places, as one consecutive piece.
    public func share(_ head: RawSpan, _ body: RawSpan, _ tail: RawSpan) -> Piece {
        outboxes.arena.add(head, body, tail)
    }

    /// Queues a piece for a connection. With `continues` the piece belongs to the same frame as the piece queued before
    /// it in the same turn. The loop drops only whole frames from a queue.
    public func send(_ piece: Piece, to connection: ConnectionID, continues: Bool = false) {
        precondition(outboxes.arena.isValid(piece), "a piece is valid in the turn that it was shared in")
        guard let seat = connections.openSeat(of: connection) else { return }
        outboxes.queue(piece.index, for: seat, &table[seat], continues: continues)
    }

    /// Queues a copy of the bytes for one connection. With `continues` they belong to the same frame as the piece
    /// queued before.
    public func send(_ bytes: RawSpan, to connection: ConnectionID, continues: Bool = false) {
        guard let seat = connections.openSeat(of: connection) else { return }
        outboxes.queue(outboxes.arena.add(bytes).index, for: seat, &table[seat], continues: continues)
    }

    /// Starts to record the connections for which output is queued. The record begins with all connections that were
    /// sent something before.
    public func recordSent() { outboxes.recordSent(table) }

    /// Returns the connections for which output was queued since the last call.
    public func takeSent() -> [ConnectionID] { outboxes.takeSent(table) }

    /// Returns the number of bytes that the peer's socket has not taken yet: queued in this turn, or in the backlog.
    public func queuedBytes(of connection: ConnectionID) -> Int {
        guard let seat = table.seat(of: connection) else { return 0 }
        return Int(table[seat].outbox.byteCount) + connections.backlogs[table[seat].backlog].byteCount
    }

    // MARK: Flushing

    /// Sends the output of every connection with queued bytes, with one call to the kernel per connection. Checks for
    /// input between batches of sends, so that a heartbeat does not wait for ten thousand deliveries.
    func flush() {
        var sinceRead = 0
        while let seat = outboxes.takeNext() {
            flush(seat)
            sinceRead += 1
            if sinceRead == Limits.sendsBetweenReads {
                sinceRead = 0
                sender.sendRing()
                readBetweenSends()
            }
        }
        sender.sendRing()
        outboxes.finishFlush()
    }

    /// Reads and handles input in the middle of a flush. Does nothing if the pieces of this turn already use much
    /// memory: handling input would keep them longer.
    private func readBetweenSends() {
        guard turnPieceBytes < Limits.turnPieceBytes else { return }
        let count = connections.epoll.wait(milliseconds: 0)
        clock.update()
        for index in 0..<count {
            let (key, events) = connections.epoll.event(index)
            if let id = Key.connection(key), let seat = table.seat(of: id) { handle(events, seat) }
        }
        // The application handles this input in `turn()`. Without another turn it would wait for the next event.
        if count > 0 { turnAgain() }
    }

    private func flush(_ seat: Int) {
        guard let list = table[seat].takeOutbox() else { return }
        if table[seat].hasSocket {
            sender.flush(list, seat)
        } else if list != 0 {
            show(list, seat)
        }
        if table[seat].stage == .closing, table[seat].backlog == 0 { connections.finishClosing(seat) }
    }

    /// Passes the output of a connection without a socket to the witness. Sends nothing to the kernel.
    private func show(_ list: UInt32, _ seat: Int) {
        guard let witness else { return }
        let connection = table.id(of: seat)
        guard witness.wantsFrames else { return witness.counted(outboxes.frameCount(of: list), to: connection) }
        let frames = outboxes.bytes(of: list)
        witness.saw(frames.bytes, to: connection)
    }
}
