import Bytes
import System

extension LoadGenerator {
    mutating func handle(_ index: Int, _ events: Epoll.Events, _ input: inout ByteWriter) {
        switch clients[index].phase {
        case .closed: return
        case .connecting: upgrade(index)
        default: receive(index, &input)
        }
    }

    /// Reads all available bytes of a client and handles each complete frame.
    private mutating func receive(_ index: Int, _ input: inout ByteWriter) {
        while clients[index].phase != .closed {
            // A read that did not fill the buffer took all available bytes. The kernel reports when more arrive.
            if read(index, Self.readBytes, &input) < Self.readBytes { return }
        }
    }

    /// Reads at most `most` bytes from a client's socket. Returns the number of bytes.
    @discardableResult
    mutating func read(_ index: Int, _ most: Int, _ input: inout ByteWriter) -> Int {
        let descriptor = clients[index].descriptor
        input.removeAll()
        input.append(clients[index].incomplete)
        var outcome = Transfer.wouldBlock
        // SAFETY: the kernel writes within the room that the writer made.
        let count = unsafe input.append(upTo: most) { room in
            outcome = unsafe StreamSocket.receive(descriptor, into: room)
            return if case .moved(let count) = outcome { count } else { 0 }
        }
        switch outcome {
        case .moved: take(index, input)
        case .wouldBlock: return 0
        case .finished:
            lose(index, "the server closed the connection")
            return 0
        case .failed(let code):
            lose(index, SystemError(operation: "receive", subject: "", code: code).description)
            return 0
        }
        tally.reads += 1
        tally.bytes += Int64(count)
        return count
    }

    private mutating func take(_ index: Int, _ input: borrowing ByteWriter) {
        let bytes = input.bytes
        let now = Clock.unixMicroseconds()
        var at = 0
        if clients[index].phase == .upgrading {
            guard let end = endOfUpgrade(index, bytes) else { return keep(index, bytes, from: 0) }
            at = end
        }
        while clients[index].phase != .closed, let frame = ServerFrame(bytes, at: at) {
            take(index, frame, bytes.extracting(frame.payload), now)
            at = frame.payload.upperBound
        }
        keep(index, bytes, from: at)
    }

    private mutating func keep(_ index: Int, _ bytes: RawSpan, from start: Int) {
        guard clients[index].phase != .closed else { return }
        guard bytes.byteCount - start <= Self.readBytes else { return lose(index, "a message is too long") }
        if start < bytes.byteCount {
            clients[index].incomplete = bytes.extracting(start..<bytes.byteCount).copied()
        } else if !clients[index].incomplete.isEmpty {
            clients[index].incomplete = []
        }
    }

    private mutating func take(_ index: Int, _ frame: ServerFrame, _ payload: RawSpan, _ now: Int64) {
        switch frame.kind {
        case .message:
            if talk == nil || payload.byteCount == 0 || payload.byte(0) != Talk.heardKind {
                take(index, ServerMessage(payload, hint: &tally.hint), payload, now)
            } else {
                hear(index, payload, now)
            }
        case .ping: sendPong(index, payload)
        case .pong: break
        case .close: lose(index, "the server closed the connection: " + payload.text.dropFirst(2).prefix(100))
        case .unexpected: tally.malformed += 1
        }
    }

    private mutating func take(_ index: Int, _ message: ServerMessage, _ text: RawSpan, _ now: Int64) {
        switch message {
        case .change(let sequence, let sent, let owner):
            if tally.sample.isEmpty { tally.sample = text.copied() }
            tally.count(&clients[index], sequence, sent, owner, now)
        case .joined: joined(index)
        case .subscribed: subscribed(index)
        case .presenceDiff where presence == nil:
            // In a bare server's message, only the number and the time matter.
            take(index, ServerMessage.numbered(text, &tally.hint), text, now)
        case .presenceState(let range): see(index, .state, text.extracting(range), now)
        case .presenceDiff(let range):
            if tally.sample.isEmpty { tally.sample = text.copied() }
            see(index, .difference, text.extracting(range), now)
        case .refused: refused(index, text)
        case .other: break
        case .malformed: tally.malformed += 1
        }
    }

    // MARK: Expecting

    mutating func expect(_ first: Int64, _ count: Int64, _ owner: ClientText?, _ stride: Int64) {
        for index in clients.indices {
            let rest = (Int64(firstNumber + index) - first) % stride
            clients[index].nextSequence = first + (rest < 0 ? rest + stride : rest)
            clients[index].stride = stride
            clients[index].expected =
                stride == 1 ? count : max(0, first + count - clients[index].nextSequence + stride - 1) / stride
            clients[index].received = 0
            clients[index].owner = owner.flatMap { Int64($0.text(client: firstNumber + index)) }
        }
        tally = LoadTally(clients)
        tally.processorAtBegin = Clock.processNanoseconds()
        answer(WorkerAnswer())
    }

    var report: LoadReport {
        var report = tally.report
        report.connected = Int64(clients.count { $0.phase != .closed })
        return report
    }
}
