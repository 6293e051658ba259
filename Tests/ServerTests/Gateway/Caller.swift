import Bytes
import Foundation
import TestSupport
import WebSocket

/// Client that performs one operation at a time: it sends a text, or waits for the next message. A wait without a
/// result fails the test after a time limit.
final class Caller: @unchecked Sendable {
    // Only one thread at a time uses a caller.
    private let client: TestClient
    private var buffer: [UInt8] = []
    private var first = 0
    private var lastRef = 0
    /// Messages that arrived while the caller waited for a different one.
    private var unheard: [Message] = []

    /// Connects, and sends nothing.
    init(port: UInt16, receiveBuffer: Int32? = nil) throws {
        client = try TestClient(port: port, receiveBuffer: receiveBuffer)
    }

    func hangUp() { client.close() }

    /// Ends the sending side of the connection, and receives everything that the hub still sends.
    func fallSilent() {
        client.finishSending()
        while let message = try? Message(Data(text())) { unheard.append(message) }
        client.close()
    }

    // MARK: Bytes

    func send(_ text: String) throws { try client.send(text) }

    func send(_ bytes: [UInt8]) throws { try client.send(bytes) }

    private func fill(_ wanted: Int) throws {
        guard buffer.count - first < wanted else { return }
        buffer.removeFirst(first)
        first = 0
        while buffer.count < wanted { try more() }
    }

    private func more() throws {
        guard try client.receive(appendingTo: &buffer) else { throw ClientFailure(operation: "receive", code: 0) }
    }

    /// Reads text up to the end of the next occurrence of `mark`.
    func read(through mark: String) throws -> String {
        let mark = Array(mark.utf8)
        var at = first
        while true {
            while buffer.count - at < mark.count { try more() }
            if buffer[at..<at + mark.count].elementsEqual(mark) {
                defer { first = at + mark.count }
                return String(decoding: buffer[first..<at + mark.count], as: UTF8.self)
            }
            at += 1
        }
    }

    func read(_ count: Int) throws -> String {
        try fill(count)
        defer { first += count }
        return String(decoding: buffer[first..<first + count], as: UTF8.self)
    }

    /// Returns the status line and the body of one HTTP answer.
    func answer() throws -> (status: String, body: String) {
        let head = try read(through: "\r\n\r\n")
        let lines = head.split(separator: "\r\n")
        let length = lines.first { $0.lowercased().hasPrefix("content-length:") }.flatMap {
            Int($0.split(separator: ":")[1].trimmingCharacters(in: .whitespaces))
        }
        return (String(lines[0]), try read(length ?? 0))
    }

    // MARK: WebSocket

    static func upgrade(_ token: String, version: String = "2.0.0") -> String {
        "GET /realtime/v1/websocket?apikey=\(token)&vsn=\(version) HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n"
            + "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    }

    static func frame(_ text: String) -> [UInt8] {
        var writer = ByteWriter()
        ClientFrameEncoder.append(.text, Array(text.utf8).span.bytes, mask: 0x0102_0304, to: &writer)
        return writer.copied()
    }

    func say(_ text: String) throws { try send(Self.frame(text)) }

    /// Returns the next frame's opcode and payload.
    private func frame() throws -> (opcode: UInt8, payload: ArraySlice<UInt8>) {
        try fill(2)
        var length = Int(buffer[first + 1])
        var head = 2
        if length == 126 {
            try fill(4)
            length = Int(buffer[first + 2]) << 8 | Int(buffer[first + 3])
            head = 4
        } else if length == 127 {
            try fill(10)
            length = buffer[first + 2..<first + 10].reduce(0) { $0 << 8 | Int($1) }
            head = 10
        }
        try fill(head + length)
        defer { first += head + length }
        return (buffer[first] & 0x0f, buffer[first + head..<first + head + length])
    }

    /// Returns the payload of the next text frame; throws `Farewell` for a close.
    func text() throws -> ArraySlice<UInt8> {
        while true {
            let (opcode, payload) = try frame()
            switch opcode {
            case 1: return payload
            case 8:
                let bytes = Array(payload)
                let code = bytes.count < 2 ? 1005 : Int(bytes[0]) << 8 | Int(bytes[1])
                throw Farewell(code: code, reason: String(decoding: bytes.dropFirst(2), as: UTF8.self))
            default: break
            }
        }
    }

    /// Returns the number that follows the mark in the next text; nil if the text does not contain the mark. This is
    /// faster than parsing many similar texts.
    func textNumber(after mark: Data) throws -> Int? {
        let bytes = Data(try text())
        guard let found = bytes.range(of: mark) else { return nil }
        return Int(
            String(decoding: bytes[found.upperBound...].prefix(20).prefix { (48...57).contains($0) }, as: UTF8.self))
    }

    // MARK: Messages

    func next() throws -> Message {
        if !unheard.isEmpty { return unheard.removeFirst() }
        return try Message(Data(try text()))
    }

    /// Returns the first message that matches. Messages before it stay available for later calls.
    func first(_ isWanted: (Message) -> Bool) throws -> Message {
        if let place = unheard.firstIndex(where: isWanted) { return unheard.remove(at: place) }
        while true {
            let message = try Message(Data(try text()))
            if isWanted(message) { return message }
            unheard.append(message)
        }
    }

    /// Removes and returns the messages that arrived while the caller waited for different ones.
    func takeUnheard() -> [Message] {
        defer { unheard = [] }
        return unheard
    }

    @discardableResult
    func push(_ topic: String, _ event: String, _ payload: String, joinRef: String? = nil) throws -> String {
        lastRef += 1
        let join = event == "phx_join" ? "\"\(lastRef)\"" : joinRef.map { "\"\($0)\"" } ?? "null"
        try say(#"[\#(join),"\#(lastRef)","\#(topic)","\#(event)",\#(payload)]"#)
        return "\(lastRef)"
    }

    /// Waits until the hub has processed everything that the caller sent before.
    func fence() throws {
        let ref = try push("phoenix", "heartbeat", "{}")
        _ = try first { $0.ref == ref && $0.topic == "phoenix" }
    }

    static func join(_ changes: [String], token: String? = nil, more: String = "") -> String {
        let token = token.map { #","access_token":"\#($0)""# } ?? ""
        return #"{"config":{"postgres_changes":[\#(changes.joined(separator: ","))]\#(more)}\#(token)}"#
    }

    /// Joins, waits for the reply, and returns the join's ref.
    @discardableResult
    func join(_ topic: String, _ changes: [String], token: String? = nil, more: String = "") throws -> String {
        let ref = try push(topic, "phx_join", Self.join(changes, token: token, more: more))
        let reply = try first { $0.topic == topic && $0.event == "phx_reply" && $0.ref == ref }
        guard reply.status == "ok" else { throw Unexpected(message: "\(reply)") }
        return ref
    }

    /// Joins, waits until the subscription is confirmed, and returns the join's ref.
    @discardableResult
    func subscribe(
        _ topic: String, _ changes: [String], token: String? = nil, more: String = ""
    ) throws -> String {
        let ref = try join(topic, changes, token: token, more: more)
        _ = try first { $0.topic == topic && $0.isSubscription }
        return ref
    }

    func change(_ topic: String? = nil) throws -> Message {
        try first { $0.event == "postgres_changes" && (topic == nil || $0.topic == topic) }
    }

    /// Returns the ids of the next changes, which must be inserts and updates of tables with an `id`.
    func ids(_ count: Int) throws -> [Int] { try (0..<count).map { _ in try change().id ?? -1 } }
}

/// Message of the client protocol, version 2.
struct Message: CustomStringConvertible {
    let joinRef: String?
    let ref: String?
    let topic: String
    let event: String
    let payload: [String: Any]

    init(_ json: Data) throws {
        guard let all = try JSONSerialization.jsonObject(with: json) as? [Any], all.count == 5,
            let topic = all[2] as? String, let event = all[3] as? String, let payload = all[4] as? [String: Any]
        else { throw ClientFailure(operation: "understand \(String(decoding: json, as: UTF8.self))", code: 0) }
        joinRef = all[0] as? String
        ref = all[1] as? String
        self.topic = topic
        self.event = event
        self.payload = payload
    }

    init(topic: String, payload: [String: Any]) {
        (joinRef, ref, event) = (nil, nil, "")
        self.topic = topic
        self.payload = payload
    }

    var status: String? { payload["status"] as? String }
    var said: String? { payload["message"] as? String }
    var isSubscription: Bool { event == "system" && said == "Subscribed to PostgreSQL" }
    var isTrouble: Bool { event == "system" && status == "error" }
    var data: [String: Any] { payload["data"] as? [String: Any] ?? [:] }
    var record: [String: Any] { data["record"] as? [String: Any] ?? [:] }
    var old: [String: Any] { data["old_record"] as? [String: Any] ?? [:] }
    var id: Int? { record["id"] as? Int }
    var type: String? { data["type"] as? String }
    var errors: [String]? { data["errors"] as? [String] }
    var bindings: [Int] { payload["ids"] as? [Int] ?? [] }
    var description: String { "\(topic) \(event) \(payload)" }
}

struct Farewell: Error, Equatable {
    let code: Int
    let reason: String
}

struct Unexpected: Error { let message: String }
