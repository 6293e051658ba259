import Bytes
import System
import WebSocket

extension LoadGenerator {
    private static let key = "dGhlIHNhbXBsZSBub25jZQ=="
    private static let keyAnswer = WebSocketHandshake.answer(toKey: key)
    /// Mask of all frames that clients send. The benchmark has nothing to hide, so one value serves for all.
    private static let mask: UInt32 = 0x5a3c_96f1
    private static let patience: Int32 = 5000

    mutating func beginConnecting(_ server: SocketAddress, _ path: ClientText, _ first: Int, _ count: Int) {
        guard clients.isEmpty else { return answer(WorkerAnswer(failure: "there are clients already")) }
        firstNumber = first
        clients.reserveCapacity(count)
        task = .connecting(server, path: path, next: 0, end: count)
    }

    /// Connects further clients, until the maximum number of handshakes is in progress.
    mutating func connectMore(_ server: SocketAddress, _ path: ClientText, _ next: Int, _ end: Int) {
        var next = next
        while next < end, inFlight < window {
            do throws(SystemError) {
                try connect(server, next)
            } catch {
                return fail(error.description)
            }
            next += 1
        }
        task = .connecting(server, path: path, next: next, end: end)
        if next == end, inFlight == 0 { finish("connected", clients.count { $0.phase != .closed }) }
    }

    /// Connects a client that is new or whose socket has been closed.
    mutating func connect(_ server: SocketAddress, _ index: Int) throws(SystemError) {
        let number = firstNumber + index
        // Source addresses begin with 127.0.1.1. Each address has its own range of ports.
        let source = SocketAddress.loopback(number: 0x101 + UInt32(number / Self.clientsPerAddress), port: 0)
        let descriptor = try StreamSocket.connect(to: server, from: source)
        StreamSocket.prepare(descriptor, sendBuffer: nil)
        try epoll.add(descriptor, [.readable, .writable], key: UInt64(index))
        if index < clients.count {
            clients[index].descriptor = descriptor
            clients[index].phase = .connecting
        } else {
            clients.append(LoadClient(descriptor: descriptor))
        }
        inFlight += 1
    }

    /// Sends the request for a WebSocket on a new connection.
    mutating func upgrade(_ index: Int) {
        guard let (server, path) = destination else { return }
        let descriptor = clients[index].descriptor
        let code = StreamSocket.pendingFailure(of: descriptor)
        guard code == 0 else {
            return lose(index, SystemError(operation: "connect to", subject: "\(server)", code: code).description)
        }
        outgoing.removeAll()
        outgoing.append("GET ")
        path.append(client: firstNumber + index, to: &outgoing, signature: signature)
        outgoing.append(
            " HTTP/1.1\r\nHost: \(server)\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: "
                + Self.key + "\r\nSec-WebSocket-Version: 13\r\n\r\n")
        clients[index].phase = .upgrading
        transmit(index)
        // The loop now waits only for bytes to read.
        do throws(SystemError) {
            try epoll.change(descriptor, .readable, key: UInt64(index))
        } catch {
            lose(index, error.description)
        }
    }

    private var destination: (SocketAddress, ClientText)? {
        switch task {
        case .connecting(let server, let path, _, _): (server, path)
        case .returning(let order): (order.server, order.path)
        case .idle, .joining, .awaiting, .talking, .tracking: nil
        }
    }

    /// Returns the offset of the first frame after the server's answer to the WebSocket upgrade; nil if the answer is
    /// not complete.
    mutating func endOfUpgrade(_ index: Int, _ bytes: RawSpan) -> Int? {
        guard let end = bytes.firstOffset(of: "\r\n\r\n", from: 0) else { return nil }
        let head = bytes.extracting(0..<end).text
        guard head.hasPrefix("HTTP/1.1 101"), head.hasSuffixOfLine(Self.keyAnswer) else {
            let status = head.prefix { $0 != "\r\n" && $0 != "\r" }
            let reason = bytes.extracting(droppingFirst: end + 4).text.prefix(200)
            lose(index, "the upgrade was refused: \(status) \(reason)")
            return nil
        }
        clients[index].phase = .open
        inFlight -= 1
        if case .returning(let order) = task { join(order.topic, order.payload, index) }
        return end + 4
    }

    // MARK: Sending

    mutating func send(_ index: Int, text: StaticString) {
        outgoing.removeAll()
        var payload = ByteWriter(capacity: 64)
        payload.append(text)
        ClientFrameEncoder.append(.text, payload.bytes, mask: Self.mask, to: &outgoing)
        transmit(index)
    }

    mutating func send(_ index: Int, _ payload: borrowing ByteWriter) {
        outgoing.removeAll()
        ClientFrameEncoder.append(.text, payload.bytes, mask: Self.mask, to: &outgoing)
        transmit(index)
    }

    /// Sends the content of `message` in one frame.
    mutating func sendMessage(_ index: Int, _ kind: MessageKind) {
        Self.write(kind, message, to: &outgoing)
        transmit(index)
    }

    private static func write(_ kind: MessageKind, _ payload: borrowing ByteWriter, to frame: inout ByteWriter) {
        frame.removeAll()
        ClientFrameEncoder.append(kind, payload.bytes, mask: mask, to: &frame)
    }

    mutating func sendPong(_ index: Int, _ payload: RawSpan) {
        outgoing.removeAll()
        ClientFrameEncoder.appendPong(payload, mask: Self.mask, to: &outgoing)
        transmit(index)
    }

    /// Sends the content of `outgoing`. If the socket's buffer is full, which is rare, waits until the server has read.
    private mutating func transmit(_ index: Int) {
        let descriptor = clients[index].descriptor
        let count = outgoing.count
        var sent = 0
        while sent < count {
            // SAFETY: the kernel reads the writer's bytes inside the closure.
            let outcome = unsafe outgoing.bytes.withUnsafeBytes {
                unsafe StreamSocket.send(descriptor, UnsafeRawBufferPointer(rebasing: $0[sent...]))
            }
            switch outcome {
            case .moved(let count): sent += count
            case .wouldBlock:
                let ready = Poll.wait(
                    socket: descriptor, forWriting: true, interrupt: nil, timeoutMilliseconds: Self.patience)
                if !ready.socket { return lose(index, "the server does not read") }
            case .finished, .failed: return lose(index, "the server does not read: \(outcome)")
            }
        }
    }

    /// Closes the connection of a client. If the current task needs all clients, the task fails.
    mutating func lose(_ index: Int, _ reason: String) {
        guard clients[index].phase != .closed else { return }
        clients[index].phase = .closed
        clients[index].incomplete = []
        StreamSocket.close(clients[index].descriptor)
        tally.closed += 1
        switch task {
        case .connecting, .joining, .returning: fail("client \(firstNumber + index): \(reason)")
        case .idle, .awaiting, .talking, .tracking: break
        }
    }
}

extension String {
    /// True if one of the lines ends with the text.
    fileprivate func hasSuffixOfLine(_ text: String) -> Bool {
        split(whereSeparator: \.isNewline).contains { $0.hasSuffix(text) }
    }
}
