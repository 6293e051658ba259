import Bytes
import Crypto
import Embedded
import Foundation
import System
import WebSocket

/// A row change that a device of the rehearsal received.
public struct Heard: Sendable, Equatable {
    public var device: String
    public var topic: String
    public var operation: String
    public var table: String
    public var row: Int
}

/// Error that ends a rehearsal: a device did not receive what the script of the incident expects.
public struct RehearsalError: Error, Sendable, CustomStringConvertible {
    public let description: String
}

/// A client device in the script of an incident: a socket to the hub, its channels, and the changes that it received.
///
/// Only one thread at a time uses a device. Its calls block until the expected message arrives.
final class Device: @unchecked Sendable {
    // No lock: the script's thread uses the device, except while a hub ends. Then the thread that watches the sockets
    // does.

    /// Behavior after a reconnect: the device resumes from its last position, or begins anew like a reloaded page.
    enum Kind { case goesOn, beginsAnew }

    struct Channel {
        var topic: String
        /// Bindings (entries of `postgres_changes`) as a JSON text, in the form that clients send.
        var bindings: String
        /// Ref of the message that joined the channel, which later messages of the channel repeat.
        var joinedBy = ""
    }

    let name: String
    private let person: DemoDatabase.Person
    private let kind: Kind
    private(set) var channels: [Channel]
    /// Changes that the device received, in order.
    private(set) var heard: [Heard] = []

    private var descriptor: Int32 = -1
    private var decoder = Device.decoder()
    private let inflater = Inflater()
    private var unread: [UInt8] = []
    private var lastRef = 0
    /// Payloads of the hub's replies, by the ref of the message that each reply answers.
    private var replies: [String: [String: Any]] = [:]
    /// Topics for which the hub has said that it sends all changes from now on.
    private var promised: Set<String> = []
    /// Last position in the log that the hub sent, by topic.
    private var positions: [String: String] = [:]
    /// True if the hub has closed the socket.
    private var hasEnded = false

    private static let patienceMilliseconds: Int32 = 180_000
    private static let mask: UInt32 = 0x5a3c_96f1

    init(_ name: String, of person: DemoDatabase.Person, _ kind: Kind, _ channels: [Channel]) {
        self.name = name
        self.person = person
        self.kind = kind
        self.channels = channels
    }

    deinit { cut() }

    private static func decoder() -> FrameDecoder {
        FrameDecoder(FrameDecoder.Rules(maximumMessageBytes: 1 << 20, maximumFragments: 64, expectsMask: false))
    }

    // MARK: Actions

    /// Connects to the hub and joins all the device's channels.
    func come(to port: UInt16, secret: String) throws {
        precondition(descriptor < 0, "\(name) has a socket")
        decoder = Self.decoder()
        (unread, hasEnded, promised, replies) = ([], false, [], [:])
        // A reloaded page numbers its messages from one again.
        if case .beginsAnew = kind { lastRef = 0 }
        let token = token(secret)
        try connect(to: port, token)
        for index in channels.indices { try join(index, token) }
    }

    /// Resets the socket without a closing handshake, as a network failure does.
    func cut() {
        guard descriptor >= 0 else { return }
        StreamSocket.reset(descriptor)
        descriptor = -1
    }

    func leave() throws {
        for channel in channels {
            let ref = try push(channel.topic, "phx_leave", "{}", joinedBy: channel.joinedBy)
            try listen("its leaving to be answered") { replies[ref] != nil }
        }
        cut()
    }

    func awaitChange(_ operation: String, _ table: String, _ row: Int) throws {
        try listen("\(operation) of row \(row) of \(table)") {
            heard.contains { $0.operation == operation && $0.table == table && $0.row == row }
        }
    }

    /// Waits until the device has read everything that the hub has sent so far, and its acknowledgement has reached the
    /// hub.
    func catchUp() throws {
        // The hub's ping follows the messages that it has sent. The device answers the ping before it reads the reply
        // to the second heartbeat.
        for _ in 0..<2 {
            let ref = try push("phoenix", "heartbeat", "{}", joinedBy: nil)
            try listen("a heartbeat's answer") { replies[ref] != nil }
        }
    }

    /// Reads until the hub has closed the socket, and closes it too.
    func awaitEnd() {
        while !hasEnded { do { try listen("the hub's end") { hasEnded } } catch { hasEnded = true } }
        cut()
    }

    // MARK: Sending

    private func token(_ secret: String) -> String {
        let now = Clock.unixMicroseconds() / 1_000_000
        let claims =
            #"{"role":"authenticated","sub":"\#(person.id)","email":"\#(person.name)@office.example","exp":\#(now + 86_400)}"#
        return JWT.sign(claims: Array(claims.utf8).span, secret: Array(secret.utf8).span)
    }

    private func connect(to port: UInt16, _ token: String) throws {
        descriptor = try StreamSocket.connect(to: .loopback(port: port))
        guard Poll.wait(socket: descriptor, forWriting: true, interrupt: nil, timeoutMilliseconds: 30_000).socket,
            StreamSocket.pendingFailure(of: descriptor) == 0
        else { throw RehearsalError(description: "\(name): nobody listens on port \(port)") }
        let request =
            "GET /realtime/v1/websocket?apikey=\(token)&vsn=2.0.0 HTTP/1.1\r\nHost: 127.0.0.1:\(port)\r\nUpgrade: websocket\r\n"
            + "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        try send(Array(request.utf8))
        let end = Array("\r\n\r\n".utf8)
        while true {
            try receive("the answer to its upgrade")
            guard let found = unread.indices.first(where: { unread[$0...].starts(with: end) }) else { continue }
            let head = String(decoding: unread[..<found], as: UTF8.self)
            guard head.hasPrefix("HTTP/1.1 101") else {
                throw RehearsalError(description: "\(name): the hub answers \(head.prefix { !$0.isNewline })")
            }
            unread.removeFirst(found + end.count)
            return
        }
    }

    private func join(_ index: Int, _ token: String) throws {
        let topic = channels[index].topic
        var more = ""
        if kind == .goesOn {
            let resume = positions[topic].map { #","resume":"\#($0)""# } ?? ""
            more = #","tidewire":{"position":true\#(resume)}"#
        }
        let ref = try push(
            topic, "phx_join",
            #"{"config":{"postgres_changes":[\#(channels[index].bindings)]\#(more)},"access_token":"\#(token)"}"#,
            joinedBy: "\(lastRef + 1)")
        channels[index].joinedBy = ref
        try listen("the answer to its join of \(topic)") { replies[ref] != nil }
        guard replies[ref]?["status"] as? String == "ok" else {
            throw RehearsalError(description: "\(name): the join of \(topic) is refused")
        }
        try listen("its subscription to \(topic)") { promised.contains(topic) }
    }

    /// Sends a message of the client protocol, and returns its ref. `joinedBy` is the ref of the channel's join
    /// message.
    private func push(_ topic: String, _ event: String, _ payload: String, joinedBy: String?) throws -> String {
        lastRef += 1
        let join = joinedBy.map { "\"\($0)\"" } ?? "null"
        var message = ByteWriter(capacity: 1024)
        message.append(#"[\#(join),"\#(lastRef)","\#(topic)","\#(event)",\#(payload)]"#)
        var frame = ByteWriter(capacity: 1024)
        ClientFrameEncoder.append(.text, message.bytes, mask: Self.mask, to: &frame)
        try send(frame.copied())
        return "\(lastRef)"
    }

    private func send(_ bytes: [UInt8]) throws {
        var sent = 0
        while sent < bytes.count {
            _ = Poll.wait(socket: descriptor, forWriting: true, interrupt: nil, timeoutMilliseconds: 1000)
            // SAFETY: the kernel reads within the array that lives for the closure.
            let transfer = unsafe bytes.withUnsafeBytes {
                unsafe StreamSocket.send(descriptor, UnsafeRawBufferPointer(rebasing: $0[sent...]))
            }
            switch transfer {
            case .moved(let count): sent += count
            case .wouldBlock: continue
            case .finished, .failed: throw RehearsalError(description: "\(name): its socket has ended")
            }
        }
    }

    // MARK: Receiving

    /// Reads messages until `isDone` returns true. `what` names the expected message for the error if it does not
    /// arrive.
    private func listen(_ what: String, until isDone: () -> Bool) throws {
        try read()
        while !isDone() {
            guard !hasEnded else { throw RehearsalError(description: "\(name): its socket ended before \(what)") }
            try receive(what)
            try read()
        }
    }

    private func receive(_ what: String) throws {
        guard
            Poll.wait(socket: descriptor, interrupt: nil, timeoutMilliseconds: Self.patienceMilliseconds).socket
        else { throw RehearsalError(description: "\(name) waits in vain for \(what)") }
        var room = [UInt8](repeating: 0, count: 16 << 10)
        // SAFETY: the kernel writes within the array that lives for the closure.
        switch unsafe room.withUnsafeMutableBytes({ unsafe StreamSocket.receive(descriptor, into: $0) }) {
        case .moved(let count): unread += room.prefix(count)
        case .wouldBlock: return
        case .finished, .failed:
            guard !hasEnded else { throw RehearsalError(description: "\(name): its socket has ended") }
            hasEnded = true
        }
    }

    /// Handles the complete frames in `unread`, and answers pings.
    private func read() throws {
        var offset = 0
        var answers: [[UInt8]] = []
        reading: while true {
            var storage = unread.mutableSpan
            // SAFETY: whatever is written into it is a valid UInt8.
            var bytes = unsafe storage.mutableBytes
            let step = decoder.next(in: &bytes, from: offset, inflater: inflater)
            offset += step.consumed
            switch step.event {
            case .needMore: break reading
            case .message(_, .inPlace(let range)): try hear(Array(unread[range]))
            case .message(_, .assembled): try hear(decoder.takeMessage().copied())
            case .ping(let range): answers.append(Array(unread[range]))
            case .pong: break
            case .close, .violation: hasEnded = true
            }
        }
        unread.removeFirst(offset)
        for payload in answers where !hasEnded {
            var frame = ByteWriter(capacity: 160)
            ClientFrameEncoder.appendPong(payload.rawBytes, mask: Self.mask, to: &frame)
            try send(frame.copied())
        }
    }

    private func hear(_ text: [UInt8]) throws {
        guard let all = try JSONSerialization.jsonObject(with: Data(text)) as? [Any], all.count == 5,
            let topic = all[2] as? String, let event = all[3] as? String, let payload = all[4] as? [String: Any]
        else { throw RehearsalError(description: "\(name): the hub says what is no message") }
        switch event {
        case "phx_reply":
            if let ref = all[1] as? String { replies[ref] = payload }
            let response = payload["response"] as? [String: Any]
            takePosition((response?["tidewire"] as? [String: Any])?["position"], topic)
        case "system":
            if payload["message"] as? String == "Subscribed to PostgreSQL" { promised.insert(topic) }
            takePosition(payload["position"], topic)
        case "postgres_changes":
            takePosition(payload["position"], topic)
            let data = payload["data"] as? [String: Any] ?? [:]
            let row = data[data["type"] as? String == "DELETE" ? "old_record" : "record"] as? [String: Any]
            heard.append(
                Heard(
                    device: name, topic: topic, operation: data["type"] as? String ?? "",
                    table: data["table"] as? String ?? "", row: row?["id"] as? Int ?? -1))
        default: break
        }
    }

    private func takePosition(_ position: Any?, _ topic: String) {
        if let position = position as? String { positions[topic] = position }
    }
}
