import Diagnostics
import System

/// Output: queued as pieces, and passed to the kernel once per connection and turn.
extension SocketLoop {
    // MARK: Queueing

    /// Bytes of all pieces of this turn so far.
    public var turnPieceBytes: Int { arena.turnBytes }

    /// Stores bytes for many connections once, valid until the end of this turn.
    public func share(_ bytes: RawSpan) -> Piece { arena.add(bytes) }

    /// Stores three consecutive parts from different places as one piece.
    public func share(_ head: RawSpan, _ body: RawSpan, _ tail: RawSpan) -> Piece { arena.add(head, body, tail) }

    /// Queues a piece. `continues`: the piece belongs to the same frame as the piece queued before it in the same turn.
    /// Queues are only ever cut between frames.
    public func send(_ piece: Piece, to connection: ConnectionID, continues: Bool = false) {
        precondition(arena.isValid(piece), "a piece is valid in the turn that it was shared in")
        guard let seat = table.seat(of: connection), table[seat].stage == .open else { return }
        queue(piece.index, seat, continues)
    }

    /// Queues a copy of bytes for this connection alone.
    public func send(_ bytes: RawSpan, to connection: ConnectionID, continues: Bool = false) {
        guard let seat = table.seat(of: connection), table[seat].stage == .open else { return }
        queue(arena.add(bytes).index, seat, continues)
    }

    @inline(__always)
    private func queue(_ piece: UInt32, _ seat: Int, _ continues: Bool) {
        let link = UInt32(links.count)
        links.append(Link(piece: piece, next: 0, continues: continues))
        let last = table[seat].lastLink
        if last == 0 { table[seat].firstLink = link } else { links[Int(last)].next = link }
        table[seat].lastLink = link
        let bytes = table[seat].queuedBytes &+ arena.extent(of: piece).length
        table[seat].queuedBytes = bytes
        largestQueue = max(largestQueue, Int(bytes))
        counts.sentPieces &+= 1
        putInQueue(seat)
    }

    @inline(__always)
    func putInQueue(_ seat: Int) {
        guard !table[seat].flags.contains(.isQueued) else { return }
        table[seat].flags.insert(.isQueued)
        queued.append(UInt32(seat))
        guard notesWhoIsSent, !table[seat].flags.contains(.wasSent) else { return }
        table[seat].flags.insert(.wasSent)
        sentSeats.append(UInt32(seat))
    }

    /// Returns the connections for which output was queued since the last call. The first call starts the recording.
    public func takeSent() -> [ConnectionID] {
        notesWhoIsSent = true
        defer { sentSeats.removeAll(keeping: 1 << 16) }
        return (0..<sentSeats.count).compactMap { index in
            let seat = Int(sentSeats[index])
            table[seat].flags.remove(.wasSent)
            // Includes an ended connection whose end the application does not know yet: it may not have received its
            // output.
            return table[seat].stage != .free ? table.id(of: seat) : nil
        }
    }

    /// Returns the latest time after which the peer certainly sent something; 0 if unknown. Input that a stalled loop
    /// reads late does not count, because its peer may have gone long ago.
    public func heardAfter(_ connection: ConnectionID) -> UInt64 {
        table.seat(of: connection).map { table[$0].heardAfter } ?? 0
    }

    /// Returns the bytes that the connection has not taken yet, queued in this turn or blocked.
    public func queuedBytes(of connection: ConnectionID) -> Int {
        guard let seat = table.seat(of: connection) else { return 0 }
        return Int(table[seat].queuedBytes) + backlogs[table[seat].backlog].byteCount
    }

    // MARK: Flushing

    /// Sends the output of every connection with queued bytes, with one call to the kernel each. Checks for input
    /// between batches of sends, so that a heartbeat does not wait for ten thousand deliveries.
    func flush() {
        var sinceRead = 0
        while nextQueued < queued.count {
            let seat = Int(queued[nextQueued])
            nextQueued += 1
            flush(seat)
            sinceRead += 1
            if sinceRead == Limits.sendsBetweenReads {
                sinceRead = 0
                if let ring { finishRingBatch(ring) }
                readBetweenSends()
            }
        }
        if let ring { finishRingBatch(ring) }
        queued.removeAll(keeping: 1 << 20)
        nextQueued = 0
    }

    /// Handles input, unless the pieces of this turn already take much memory: answers to the input would hold them
    /// longer.
    private func readBetweenSends() {
        guard arena.turnBytes < Limits.turnPieceBytes else { return }
        let count = epoll.wait(milliseconds: 0)
        now = time.monotonicNanoseconds()
        for index in 0..<count {
            let (key, events) = epoll.event(index)
            if let id = Key.connection(key), let seat = table.seat(of: id) { handle(events, seat) }
        }
        // The application's `turn()` handles this input; without another turn it would wait for the next event.
        if count > 0 { turnAgain() }
    }

    private func flush(_ seat: Int) {
        guard let first = takeQueue(seat) else { return }
        if table[seat].backlog != 0 {
            enqueue(seat, first, skipping: 0)
        } else if first != 0 {
            if !table[seat].hasSocket {
                show(seat, first)
            } else if let secured = secured(seat) {
                flushSecurely(seat, secured.session, first)
            } else if let ring {
                flushByRing(seat, first, ring)
                // A connection can only be closed after its bytes were sent.
                if table[seat].stage == .closing { finishRingBatch(ring) }
            } else {
                flushList(seat, first)
            }
        }
        if table[seat].stage == .closing, table[seat].backlog == 0 { finishClosing(seat) }
    }

    /// Takes a connection's queue and returns its first link, 0 if it is empty; nil if the connection has ended.
    @inline(__always)
    func takeQueue(_ seat: Int) -> UInt32? {
        table[seat].flags.remove(.isQueued)
        guard table[seat].stage == .open || table[seat].stage == .closing else { return nil }
        let first = table[seat].firstLink
        table[seat].firstLink = 0
        table[seat].lastLink = 0
        table[seat].queuedBytes = 0
        return first
    }

    func flushList(_ seat: Int, _ first: UInt32) {
        var start = first
        while start != 0 {
            let next = gatherList(from: start)
            let wanted = gather.byteCount
            switch sendBatch(seat) {
            case .moved(let count):
                counts.sentBytes += count
                if count < wanted { return block(seat, start, skipping: count) }
            case .wouldBlock: return block(seat, start, skipping: 0)
            case .finished: return
            case .failed(let code): return end(seat, .failed(code: code), byReset: true)
            }
            start = next
        }
    }

    @inline(__always)
    private func sendBatch(_ seat: Int) -> Transfer {
        let descriptor = table[seat].descriptor
        // SAFETY: the gathered ranges point into the arena's pieces of this turn and the gather's own scratch.
        if let single = unsafe gather.single { return unsafe StreamSocket.send(descriptor, single) }
        return unsafe StreamSocket.send(descriptor, pieces: gather.batch)
    }

    /// Gathers as many pieces of a list as fit one call. Returns the link with which the next call begins.
    ///
    /// In a fan-out most connections have the same list as the one before, so its batch is used again.
    func gatherList(from start: UInt32) -> UInt32 {
        if gatheredList != 0, areEqual(gatheredList, start) { return 0 }
        gatheredList = 0
        gather.reset()
        let next = fillGather(from: start)
        if next == 0 { gatheredList = start }
        return next
    }

    func fillGather(from start: UInt32) -> UInt32 {
        var link = start
        while link != 0 {
            let entry = links[Int(link)]
            let extent = arena.extent(of: entry.piece)
            // SAFETY: the extent's bytes stay where they are until the turn ends.
            guard unsafe gather.add(arena.address(of: extent), Int(extent.length)) else { break }
            link = entry.next
        }
        gather.finish()
        return link
    }

    func areEqual(_ left: UInt32, _ right: UInt32) -> Bool {
        var (left, right) = (left, right)
        while left != 0, right != 0 {
            let (one, other) = (links[Int(left)], links[Int(right)])
            if one.piece != other.piece { return false }
            left = one.next
            right = other.next
        }
        return left == right
    }

    // MARK: Blocked connections

    /// Keeps the remaining output of a connection whose socket is full, until there is room.
    func block(_ seat: Int, _ first: UInt32, skipping sent: Int, committed: Int = 0) {
        precondition(table[seat].backlog == 0, "a blocked connection has a backlog already")
        table[seat].backlog = backlogs.take(seat: seat, committed: committed, at: now)
        enqueue(seat, first, skipping: sent)
        needSweep(at: time(after: settings.outboxAge.nanoseconds))
        watch(seat)
    }

    /// Appends a list to the connection's backlog.
    private func enqueue(_ seat: Int, _ first: UInt32, skipping sent: Int) {
        let backlog = backlogs[table[seat].backlog]
        var link = first
        var skip = sent
        while link != 0 {
            let entry = links[Int(link)]
            link = entry.next
            var extent = arena.extent(of: entry.piece)
            if skip >= Int(extent.length) {
                skip -= Int(extent.length)
                continue
            }
            extent.offset += UInt32(skip)
            extent.length -= UInt32(skip)
            arena.retain(extent.chunk)
            backlog.append(.init(extent: extent, continues: entry.continues || skip > 0))
            skip = 0
        }
        if backlog.byteCount > settings.outboxBytes {
            fall(seat)
        } else if backlog.byteCount > filledBytes {
            table[seat].flags.insert(.isFilled)
            filled.append(UInt32(seat))
        }
    }

    /// Sends more of the backlog after the socket has room again.
    func resume(_ seat: Int) {
        let backlog = backlogs[table[seat].backlog]
        let before = backlog.byteCount
        if let secured = secured(seat) {
            resumeSecurely(seat, secured.session, backlog)
        } else {
            resumePlainly(seat, backlog)
        }
        if backlog.byteCount < before { backlog.takenAt = now }
        guard table[seat].isLive, backlog.isEmpty else { return }
        releaseBacklog(seat)
        watch(seat)
        if table[seat].flags.contains(.isFilled) {
            table[seat].flags.remove(.isFilled)
            drained.append(UInt32(seat))
        }
        // Output that a closing connection has queued in this turn goes first.
        if table[seat].stage == .closing { putInQueue(seat) }
    }

    private func resumePlainly(_ seat: Int, _ backlog: Backlog) {
        gatheredList = 0
        while !backlog.isEmpty {
            gatherBacklog(backlog)
            let wanted = gather.byteCount
            switch sendBatch(seat) {
            case .moved(let count):
                counts.sentBytes += count
                backlog.advance(count, arena)
                // The socket took less than offered, so it is full; or other connections want their turn.
                if count < wanted || !backlog.isEmpty { return }
            case .wouldBlock, .finished: return
            case .failed(let code): return end(seat, .failed(code: code), byReset: true)
            }
        }
    }

    private func gatherBacklog(_ backlog: Backlog) {
        gather.reset()
        for index in 0..<backlog.count {
            let extent = backlog[index].extent
            guard gather.byteCount < resumeBytes else { break }
            // SAFETY: the backlog retains the extent's chunk until `advance`.
            guard unsafe gather.add(arena.address(of: extent), Int(extent.length)) else { break }
        }
        gather.finish()
    }

    /// Approximate number of bytes that a socket takes at once after it was full.
    private var resumeBytes: Int { 256 << 10 }

    func releaseBacklog(_ seat: Int) {
        let index = table[seat].backlog
        guard index != 0 else { return }
        noteFreed(backlogs.release(index, arena))
        table[seat].backlog = 0
    }

    /// Makes epoll watch for the events that matter in the connection's present stage.
    func watch(_ seat: Int) {
        let connection = table[seat]
        var events: Epoll.Events = connection.backlog == 0 ? [] : .writable
        switch connection.stage {
        case .open:
            if !connection.flags.contains(.readingIsPaused) { events.formUnion([.readable, .peerFinished]) }
        case .lingering: events = [.readable, .peerFinished]
        case .closing: break
        case .handshaking, .free, .ended: return
        }
        setWatched(seat, events)
    }

    func setWatched(_ seat: Int, _ events: Epoll.Events) {
        let bits = UInt16(truncatingIfNeeded: events.rawValue)
        guard table[seat].watched != bits else { return }
        table[seat].watched = bits
        do throws(SystemError) {
            try epoll.change(table[seat].descriptor, events, key: Key.connection(table.id(of: seat)))
        } catch {
            end(seat, .failed(code: error.code), byReset: true)
        }
    }
}
