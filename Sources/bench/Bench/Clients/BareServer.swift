import Bytes
import Glibc
import System
import WebSocket

/// Smallest server that can send one message to many sockets: a loop of `send()` with the same bytes for all. The
/// server answers the WebSocket upgrade, ignores everything that clients send, and keeps no state for them. The
/// difference in cost to a hub is the hub's own work.
///
/// The server reads commands as lines and answers each with one line:
///
///     listen                                 → its port
///     ready COUNT                            waits until so many clients are connected
///     send COUNT TOGETHER FIRST TEMPLATE     sends COUNT messages, TOGETHER in one call per socket → what it cost
///     quit
///
/// In the template, `{seq}` stands for the message's number and `{at}` for the time in Unix microseconds. If the
/// template's first byte is below a space, its messages are binary.
public struct BareServer: ~Copyable {
    private static let inputKey = UInt64.max
    private static let listenerKey = UInt64.max - 1

    private var lines: LineReader
    private let output: Int32
    private let epoll: Epoll
    private var listener: Int32 = -1
    /// Sockets that have not sent their whole upgrade request yet, with the bytes received so far.
    private var asking: [Int32: [UInt8]] = [:]
    private var sockets: [Int32] = []
    /// Number of connected clients for which the command `ready` waits; nil if none waits.
    private var awaited: Int?
    private var isOver = false

    public static func run(input: Int32 = 0, output: Int32 = 1) throws {
        DescriptorTable.raiseLimit()
        var server = try BareServer(input: input, output: output)
        server.run()
    }

    private init(input: Int32, output: Int32) throws {
        let epoll = try Epoll()
        try epoll.add(input, .readable, key: Self.inputKey)
        self.epoll = epoll
        lines = LineReader(input)
        self.output = output
    }

    private mutating func run() {
        while !isOver {
            for index in 0..<epoll.wait(milliseconds: nil) {
                switch epoll.event(index).key {
                case Self.inputKey: takeLines()
                case Self.listenerKey: accept()
                case let key: hear(Int32(key))
                }
            }
            if let count = awaited, sockets.count >= count {
                awaited = nil
                answer(["connected": Int64(sockets.count)])
            }
        }
        // The listener is closed first, so that a client whose socket closes cannot connect to this server again.
        if listener >= 0 { StreamSocket.close(listener) }
        for descriptor in sockets + asking.keys { StreamSocket.close(descriptor) }
    }

    private mutating func takeLines() {
        lines.fill()
        while let line = lines.next() { obey(line) }
        if lines.isAtEnd { isOver = true }
    }

    private mutating func obey(_ line: String) {
        let words = line.split(separator: " ", maxSplits: 4).map(String.init)
        switch words.first {
        case "listen": listen()
        case "ready": awaited = words.count == 2 ? Int(words[1]) : nil
        case "send":
            guard words.count == 5, let count = Int(words[1]), let together = Int(words[2]),
                let first = Int64(words[3]),
                count > 0, together > 0, count.isMultiple(of: together)
            else { return fail("send COUNT TOGETHER FIRST TEMPLATE") }
            send(count, together, first, ChangeTemplate(words[4]))
        case "quit": isOver = true
        default: fail("no such command")
        }
    }

    private func answer(_ numbers: [String: Int64]) {
        var answer = WorkerAnswer()
        answer.numbers = numbers
        _ = ByteStream.write(answer.line, to: output)
    }

    private func fail(_ message: String) { _ = ByteStream.write(WorkerAnswer(failure: message).line, to: output) }

    // MARK: Connecting

    private mutating func listen() {
        do throws(SystemError) {
            listener = try StreamSocket.listen(on: .loopback(port: 0), backlog: 4096)
            try epoll.add(listener, .readable, key: Self.listenerKey)
            answer(["port": Int64(try StreamSocket.localAddress(of: listener).port)])
        } catch {
            fail(error.description)
        }
    }

    private mutating func accept() {
        while case .accepted(let descriptor, _) = StreamSocket.accept(from: listener) {
            StreamSocket.prepare(descriptor, sendBuffer: nil)
            asking[descriptor] = []
            try? epoll.add(descriptor, .readable, key: UInt64(descriptor))
        }
    }

    private mutating func hear(_ descriptor: Int32) {
        guard var said = asking[descriptor] else { return }
        let more = ByteStream.read(descriptor)
        said += more
        guard !more.isEmpty, said.count < 16 << 10 else {
            asking[descriptor] = nil
            return StreamSocket.close(descriptor)
        }
        asking[descriptor] = said
        // SAFETY: any byte is a valid UInt8, and the span lives for the expression.
        guard unsafe said.span.bytes.firstOffset(of: "\r\n\r\n", from: 0) != nil else { return }
        asking[descriptor] = nil
        let response =
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
            + WebSocketHandshake.answer(toKey: Self.key(in: said)) + "\r\n\r\n"
        _ = ByteStream.write(Array(response.utf8), to: descriptor)
        // The server ignores what clients send from now on, so their bytes must not wake it.
        epoll.remove(descriptor)
        sockets.append(descriptor)
    }

    private static func key(in request: [UInt8]) -> String {
        let lines = String(decoding: request, as: UTF8.self).split(whereSeparator: \.isNewline)
        let line = lines.first { $0.lowercased().hasPrefix("sec-websocket-key:") }
        return line.map { String($0.dropFirst(18).drop { $0 == " " }) } ?? ""
    }

    // MARK: Sending

    private func send(_ count: Int, _ together: Int, _ first: Int64, _ template: ChangeTemplate) {
        var frames = ByteWriter(capacity: 64 << 10)
        var message = ByteWriter()
        var blocked: Int64 = 0
        let (began, used) = (Clock.monotonicNanoseconds(), Clock.processNanoseconds())
        for turn in 0..<count / together {
            frames.removeAll()
            for index in 0..<together {
                message.removeAll()
                template.append(
                    sequence: first + Int64(turn * together + index), at: Clock.unixMicroseconds(), to: &message)
                FrameEncoder.append(template.isBinary ? .binary : .text, message.bytes, to: &frames)
            }
            blocked += sendToAll(frames)
        }
        answer([
            "deliveries": Int64(count * sockets.count), "cpu_ns": Int64(Clock.processNanoseconds() - used),
            "ns": Int64(Clock.monotonicNanoseconds() - began), "blocked": blocked,
        ])
    }

    /// Sends the frames to all sockets, and waits where a socket has no room. Returns how often that happened.
    private func sendToAll(_ frames: borrowing ByteWriter) -> Int64 {
        // SAFETY: the kernel reads the writer's bytes inside the closure.
        unsafe frames.bytes.withUnsafeBytes { bytes in
            var blocked: Int64 = 0
            guard let start = bytes.baseAddress else { return 0 }
            for descriptor in sockets {
                var sent = 0
                while sent < bytes.count {
                    let count = unsafe Glibc.send(descriptor, start + sent, bytes.count - sent, Int32(MSG_NOSIGNAL))
                    if count > 0 {
                        sent += count
                    } else if count < 0, errno == EAGAIN {
                        blocked += 1
                        _ = Poll.wait(socket: descriptor, forWriting: true, interrupt: nil, timeoutMilliseconds: 1000)
                    } else if count == 0 || errno != EINTR {
                        break
                    }
                }
            }
            return blocked
        }
    }
}

/// Text of a change in which `{seq}` and `{at}` stand for its number and its time. The sender fills them in.
public struct ChangeTemplate: Sendable {
    private enum Piece: Sendable {
        case literal([UInt8])
        case sequence, moment
    }

    private let pieces: [Piece]
    let isBinary: Bool

    public init(_ text: String) {
        isBinary = text.utf8.first.map { $0 < UInt8(ascii: " ") } ?? false
        var pieces: [Piece] = []
        var rest = text[...]
        while let start = rest.firstIndex(of: "{") {
            let tail = rest[start...]
            let found: (Piece, Int)? =
                tail.hasPrefix("{seq}") ? (.sequence, 5) : tail.hasPrefix("{at}") ? (.moment, 4) : nil
            guard let (piece, length) = found else {
                pieces.append(.literal(Array(rest[...start].utf8)))
                rest = rest[rest.index(after: start)...]
                continue
            }
            pieces.append(.literal(Array(rest[..<start].utf8)))
            pieces.append(piece)
            rest = tail.dropFirst(length)
        }
        pieces.append(.literal(Array(rest.utf8)))
        self.pieces = pieces
    }

    /// Returns a template text made from a message of the hub: its number and its time are replaced by `{seq}` and
    /// `{at}`. A bare server that sends it gives clients as much work as the hub does.
    static func text(of message: String) -> String {
        var text = message
        for (name, place) in [("seq", "{seq}"), ("at", "{at}")] {
            guard let found = text.firstRange(of: "\"\(name)\":") else { continue }
            let digits = text[found.upperBound...].prefix { $0.isNumber }
            text.replaceSubrange(digits.startIndex..<digits.endIndex, with: place)
        }
        return text
    }

    public func append(sequence: Int64, at microseconds: Int64, to writer: inout ByteWriter) {
        for piece in pieces {
            switch piece {
            case .literal(let bytes): writer.append(bytes)
            case .sequence: writer.append(decimal: sequence)
            case .moment: writer.append(decimal: microseconds)
            }
        }
    }
}
