import Crypto
import System

/// Passes queued output and backlogs to the kernel, with as few calls as possible.
final class Sender {
    private let connections: Connections
    private let outboxes: Outboxes
    private let batch = Gather(ranges: 4096, scratchBytes: 1 << 20)
    /// First link of the list of pieces that `batch` contains completely; 0 for none.
    private var batchedList: UInt32 = 0
    /// io_uring ring; nil if each connection is sent to with a call of its own.
    private let ring: SendRing?
    private let records = RecordArea()
    /// Number of bytes that the kernel took since the last `takeSentBytes()`.
    private var sentBytes = 0

    init(_ connections: Connections, _ outboxes: Outboxes, ring: SendRing?) {
        self.connections = connections
        self.outboxes = outboxes
        self.ring = ring
    }

    func takeSentBytes() -> Int {
        defer { sentBytes = 0 }
        return sentBytes
    }

    /// Ends a turn, after which its lists of pieces are invalid.
    func endTurn() { batchedList = 0 }

    // MARK: One connection

    /// Sends a connection's list of pieces: now, or with the ring's next call. If the connection is blocked, appends
    /// the list to its backlog.
    func flush(_ list: UInt32, _ seat: Int) {
        let table = connections.table
        if table[seat].backlog != 0 {
            connections.addToBacklog(seat, list, skipping: 0)
        } else if list == 0 {
            return
        } else if let secured = connections.secured(seat) {
            send(list, seat, by: secured.session)
        } else if let ring {
            if mustSendRing(ring, before: list) { sendRing() }
            addToRing(ring, list, seat, table[seat].descriptor)
            // A connection can be closed only after its bytes were sent.
            if table[seat].stage == .closing { sendRing() }
        } else {
            send(list, seat)
        }
    }

    private func send(_ list: UInt32, _ seat: Int) {
        let descriptor = connections.table[seat].descriptor
        var start = list
        while start != 0 {
            let next = gather(start)
            let wanted = batch.byteCount
            switch sendBatch(descriptor) {
            case .moved(let count):
                sentBytes += count
                if count < wanted { return connections.block(seat, start, skipping: count) }
            case .wouldBlock: return connections.block(seat, start, skipping: 0)
            case .finished: return
            case .failed(let code): return connections.end(seat, .failed(code: code), byReset: true)
            }
            start = next
        }
    }

    @inline(__always)
    private func sendBatch(_ descriptor: Int32) -> Transfer {
        // SAFETY: the gathered ranges point into pieces of this turn, or of the backlog, and the batch's own scratch.
        if let single = unsafe batch.single { return unsafe StreamSocket.send(descriptor, single) }
        return unsafe StreamSocket.send(descriptor, pieces: batch.batch)
    }

    /// Gathers pieces of a list, as many as fit in one call. Returns the link with which the next call begins; 0 at the
    /// end.
    ///
    /// In a fan-out most connections have the same list as the connection before, so the same batch is used again.
    private func gather(_ start: UInt32) -> UInt32 {
        if isBatched(start) { return 0 }
        batch.reset()
        return fill(from: start)
    }

    private func isBatched(_ list: UInt32) -> Bool {
        batchedList != 0 && outboxes.areEqual(batchedList, list)
    }

    private func fill(from start: UInt32) -> UInt32 {
        let next = outboxes.fill(batch, from: start)
        batchedList = next == 0 ? start : 0
        return next
    }

    // MARK: Many connections with the ring

    /// True if the ring must send its present batch before it can accept another list of pieces.
    private func mustSendRing(_ ring: SendRing, before list: UInt32) -> Bool {
        guard !ring.sends.isEmpty else { return false }
        return ring.isFull || !batch.hasRoom && !isBatched(list)
    }

    private func addToRing(
        _ ring: SendRing, _ list: UInt32, _ seat: Int, _ descriptor: Int32
    ) {
        var next: UInt32 = 0
        if !isBatched(list) {
            // Earlier sends of the ring still need the bytes gathered for them, so they must not be discarded.
            if ring.sends.isEmpty { batch.reset() } else { batch.begin() }
            next = fill(from: list)
        }
        let send = SendRing.Send(
            seat: UInt32(seat), first: list, next: next, byteCount: batch.byteCount, outcome: 0)
        ring.add(send, descriptor, batch)
    }

    /// Sends the ring's batch and acts on the outcome of each send.
    func sendRing() {
        guard let ring, !ring.sends.isEmpty else { return }
        ring.submit()
        // Handling the outcomes may overwrite the gathered batch.
        batchedList = 0
        for index in 0..<ring.sends.count { handle(ring.sends[index]) }
        ring.sends.removeAll()
    }

    private func handle(_ sent: SendRing.Send) {
        let seat = Int(sent.seat)
        guard sent.outcome >= 0 else {
            switch StreamSocket.outcome(of: -sent.outcome) {
            case .wouldBlock, .moved, .finished: connections.block(seat, sent.first, skipping: 0)
            case .failed(let code): connections.end(seat, .failed(code: code), byReset: true)
            }
            return
        }
        let count = Int(sent.outcome)
        sentBytes += count
        if count < sent.byteCount {
            connections.block(seat, sent.first, skipping: count)
        } else if sent.next != 0 {
            send(sent.next, seat)
        }
    }

    // MARK: TLS

    /// Sends a list of pieces in TLS records. Small pieces share a record; a large piece continues in the next one.
    private func send(
        _ list: UInt32, _ seat: Int, by session: TLSSession
    ) {
        var link = list
        var offset = 0
        while link != 0 {
            // SAFETY: the record lies in a piece of this turn or in the record area, until the next one is made.
            let record = unsafe outboxes.record(from: link, offset, in: records)
            switch unsafe session.write(record) {
            case .moved(let count):
                sentBytes += count
                outboxes.skip(&link, &offset, count)
            case .wantsRead, .wantsWrite:
                return connections.block(seat, link, skipping: offset, committed: record.count)
            case .finished, .failed: return connections.end(seat, .tlsFailed, byReset: true)
            }
        }
    }

    // MARK: Backlogs

    /// Sends more of a backlog when the socket has room again.
    func resume(_ seat: Int, now: UInt64) {
        let backlog = connections.backlogs[connections.table[seat].backlog]
        let before = backlog.byteCount
        if let failure = send(backlog, seat) {
            return connections.end(seat, failure, byReset: true)
        }
        if backlog.byteCount < before { backlog.take(at: now) }
        guard backlog.isEmpty else { return }
        connections.unblock(seat)
        // A closing connection may have queued output in this turn. The flush sends that first.
        if connections.table[seat].stage == .closing { outboxes.putInQueue(seat, &connections.table[seat]) }
    }

    /// Sends more of a backlog. Returns a reason if the connection must end.
    private func send(_ backlog: Backlog, _ seat: Int) -> ConnectionEnd? {
        if let secured = connections.secured(seat) { return send(backlog, by: secured.session) }
        return send(backlog, to: connections.table[seat].descriptor)
    }

    private func send(_ backlog: Backlog, to descriptor: Int32) -> ConnectionEnd? {
        batchedList = 0
        while !backlog.isEmpty {
            backlog.fill(batch, outboxes.arena)
            let wanted = batch.byteCount
            switch sendBatch(descriptor) {
            case .moved(let count):
                sentBytes += count
                backlog.advance(count, outboxes.arena)
                // The socket took less than offered, so it is full. Otherwise other connections are served first.
                if count < wanted || !backlog.isEmpty { return nil }
            case .wouldBlock, .finished: return nil
            case .failed(let code): return .failed(code: code)
            }
        }
        return nil
    }

    /// Sends a backlog in TLS records. OpenSSL requires that a repeated write offers at least the bytes offered before.
    /// That holds: both records begin at the front of the same queue and are as long as possible.
    private func send(_ backlog: Backlog, by session: TLSSession) -> ConnectionEnd? {
        while !backlog.isEmpty {
            // SAFETY: the record lies in a chunk that the backlog retains, or in the record area, until the next record
            // is made.
            let record = unsafe backlog.record(in: records, outboxes.arena)
            switch unsafe session.write(record) {
            case .moved(let count):
                sentBytes += count
                backlog.advance(count, outboxes.arena)
            case .wantsRead, .wantsWrite:
                backlog.commit(record.count)
                return nil
            case .finished, .failed: return .tlsFailed
            }
        }
        return nil
    }
}
