import Foundation
import System

/// Parser of the hub's frames to clients. It parses equal texts only once, because a crowd receives the same bytes a
/// thousand times.
///
/// All clients of a simulation share one parser. Its cache depends on the text alone, not on the receiver.
final class Wire {
    /// Parsed message, with its topic.
    struct Message {
        enum Kind {
            case reply(ref: String?, isGood: Bool, recovery: Recovery?, text: String)
            case told(String)
            case subscribed
            case position(LogPlace)
            case change(HeardChange, Passage?)
            /// Message of the database, identified by the version of its row.
            case said(Int)
            case truncated(table: String)
            case ended
            case other
        }

        var topic: Int
        var kind: Kind
    }

    /// Parsed result, stored with its bytes.
    private struct Known<Meaning> {
        var bytes: [UInt8]
        var meaning: Meaning

        func isOf(_ others: UnsafeRawBufferPointer) -> Bool {
            guard bytes.count == others.count else { return false }
            return bytes.withUnsafeBytes { own in
                guard let own = own.baseAddress, let others = others.baseAddress else { return bytes.isEmpty }
                return memcmp(own, others, bytes.count) == 0
            }
        }
    }

    /// Buffer that holds bytes between a socket and the parser. It stores nothing permanently.
    let room = UnsafeMutableRawBufferPointer.allocate(byteCount: 256 << 10, alignment: 16)
    private var messages: [UInt64: Known<Message>] = [:]
    private var changes: [UInt64: Known<HeardChange>] = [:]
    private var topicsRead: [UInt64: Known<Int>] = [:]
    private var topics: [String: Int] = ["phoenix": Wire.phoenix]
    private var tokens: [String: String] = [:]
    /// Number of the topic `phoenix`, whose messages concern the whole connection.
    static let phoenix = 0
    private static let mostKnown = 1 << 15

    deinit { room.deallocate() }

    /// Returns the number of a topic; equal topics have equal numbers.
    func topic(_ name: String) -> Int {
        if let known = topics[name] { return known }
        let number = topics.count
        topics[name] = number
        return number
    }

    func token(_ claims: String, _ sign: (String) -> String) -> String {
        if let known = tokens[claims] { return known }
        let token = sign(claims)
        tokens[claims] = token
        return token
    }

    func message(_ payload: UnsafeRawBufferPointer) -> Message {
        if let message = changeMessage(payload) { return message }
        let hash = Self.hash(payload)
        if let known = messages[hash], known.isOf(payload) { return known.meaning }
        if messages.count >= Self.mostKnown { messages = [:] }
        let message = parse(Data(payload))
        messages[hash] = Known(bytes: Array(payload), meaning: message)
        return message
    }

    private static let afterTopic = Array(#"","event":"postgres_changes","payload":{"ids":["#.utf8)

    /// Parses a change in the usual form, as in most messages. Returns nil for any other form, which the general parser
    /// reads.
    private func changeMessage(_ payload: UnsafeRawBufferPointer) -> Message? {
        guard var text = Text(payload), text.skip(#"{"topic":""#), let topic = text.takeString(),
            text.skip(Self.afterTopic), text.skipNumbers(),
            text.skip(#"],"data":"#), text.skipLast(#"},"ref":null}"#)
        else { return nil }
        var passage: Passage?
        if text.skipLast("\"") {
            guard let previous = text.takeLastPlace(), text.skipLast(#"","previous":""#),
                let place = text.takeLastPlace(), text.skipLast(#","position":""#)
            else { return nil }
            passage = Passage(place: place, previous: previous)
        }
        return Message(topic: number(ofTopic: topic), kind: .change(change(text.rest), passage))
    }

    private func number(ofTopic bytes: UnsafeRawBufferPointer) -> Int {
        let hash = Self.hash(bytes)
        if let known = topicsRead[hash], known.isOf(bytes) { return known.meaning }
        if topicsRead.count >= Self.mostKnown { topicsRead = [:] }
        let number = topic(String(decoding: bytes, as: UTF8.self))
        topicsRead[hash] = Known(bytes: Array(bytes), meaning: number)
        return number
    }

    private func change(_ bytes: UnsafeRawBufferPointer) -> HeardChange {
        let hash = Self.hash(bytes)
        if let known = changes[hash], known.isOf(bytes) { return known.meaning }
        if changes.count >= Self.mostKnown { changes = [:] }
        guard let data = try? JSONSerialization.jsonObject(with: Data(bytes)) as? [String: Any] else {
            preconditionFailure("a change is no JSON: \(String(decoding: bytes, as: UTF8.self))")
        }
        let change = Self.change(data, hash)
        changes[hash] = Known(bytes: Array(bytes), meaning: change)
        return change
    }

    /// Returns a hash that is the same for equal bytes in every process.
    private static func hash(_ bytes: UnsafeRawBufferPointer) -> UInt64 {
        var hash = UInt64(bytes.count) &* 0x9e37_79b9_7f4a_7c15
        var place = 0
        while place + 8 <= bytes.count {
            hash = (hash ^ bytes.loadUnaligned(fromByteOffset: place, as: UInt64.self)) &* 0xff51_afd7_ed55_8ccd
            hash ^= hash >> 32
            place += 8
        }
        while place < bytes.count {
            hash = (hash ^ UInt64(bytes[place])) &* 0x100_0000_01b3
            place += 1
        }
        return hash ^ hash >> 29
    }

    // MARK: Meaning of a text

    private func parse(_ bytes: Data) -> Message {
        guard let message = try? JSONSerialization.jsonObject(with: bytes) as? [String: Any],
            let topic = message["topic"] as? String, let event = message["event"] as? String
        else { preconditionFailure("the hub does not say JSON: \(String(decoding: bytes, as: UTF8.self))") }
        let content = message["payload"] as? [String: Any] ?? [:]
        let ref = message["join_ref"] as? String ?? message["ref"] as? String
        let kind: Message.Kind =
            switch event {
            case "phx_reply":
                .reply(
                    ref: ref, isGood: content["status"] as? String == "ok", recovery: Self.recovery(in: content),
                    text: "\(content["response"] ?? "")")
            case "system": Self.system(content)
            case "postgres_changes":
                .change(
                    Self.change(
                        content["data"] as? [String: Any] ?? [:],
                        bytes.withUnsafeBytes { Self.hash($0) }), nil)
            case "broadcast": .said((content["payload"] as? [String: Any])?["version"] as? Int ?? -1)
            case "phx_close", "phx_error": .ended
            default: .other
            }
        return Message(topic: self.topic(topic), kind: kind)
    }

    private static func recovery(in content: [String: Any]) -> Recovery? {
        let response = content["response"] as? [String: Any]
        let standing = response?["tidewire"] as? [String: Any]
        guard let recovered = standing?["recovered"] as? Bool else { return nil }
        return recovered ? .recovered : .refused(standing?["reason"] as? String ?? "")
    }

    private static func system(_ content: [String: Any]) -> Message.Kind {
        let message = content["message"] as? String ?? ""
        if content["status"] as? String == "error" || message.contains("missing") { return .told(message) }
        if message == "Subscribed to PostgreSQL" { return .subscribed }
        if let emptied = message.firstMatch(of: /^TRUNCATE took all rows of \W*public\W+(\w+)/) {
            return .truncated(table: String(emptied.1))
        }
        guard let place = (content["position"] as? String)?.wholeMatch(of: /([0-9a-f]{16})\.(\d+)/),
            let epoch = UInt64(place.1, radix: 16), let offset = UInt64(place.2)
        else { return .other }
        return .position(LogPlace(epoch: epoch, offset: offset))
    }

    private static func change(_ data: [String: Any], _ hash: UInt64) -> HeardChange {
        HeardChange(
            table: data["table"] as? String ?? "", operation: data["type"] as? String ?? "",
            record: data["record"] as? [String: Any] ?? [:], old: data["old_record"] as? [String: Any] ?? [:],
            errors: data["errors"] is NSNull ? nil : data["errors"], trail: hash)
    }
}

/// Position of a change in the log, and the previous position on its channel.
struct Passage {
    var place: LogPlace
    var previous: LogPlace
}

/// Text from which a parser removes parts at both ends.
private struct Text {
    private let bytes: UnsafeRawBufferPointer
    private let base: UnsafeRawPointer
    private var start = 0
    private var end: Int

    init?(_ bytes: UnsafeRawBufferPointer) {
        guard let base = bytes.baseAddress else { return nil }
        self.base = base
        self.bytes = bytes
        end = bytes.count
    }

    var rest: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: bytes[start..<end]) }

    mutating func skip(_ words: StaticString) -> Bool {
        let count = words.utf8CodeUnitCount
        guard end - start >= count, memcmp(base + start, words.utf8Start, count) == 0 else {
            return false
        }
        start += count
        return true
    }

    mutating func skip(_ words: [UInt8]) -> Bool {
        guard end - start >= words.count, memcmp(base + start, words, words.count) == 0 else {
            return false
        }
        start += words.count
        return true
    }

    mutating func skipLast(_ words: StaticString) -> Bool {
        let count = words.utf8CodeUnitCount
        guard end - start >= count, memcmp(base + end - count, words.utf8Start, count) == 0 else {
            return false
        }
        end -= count
        return true
    }

    /// Returns the text up to the next quote.
    mutating func takeString() -> UnsafeRawBufferPointer? {
        let from = start
        while start < end, bytes[start] != UInt8(ascii: "\"") { start += 1 }
        return start < end ? UnsafeRawBufferPointer(rebasing: bytes[from..<start]) : nil
    }

    mutating func skipNumbers() -> Bool {
        let from = start
        while start < end, 48...57 ~= bytes[start] || bytes[start] == UInt8(ascii: ",") { start += 1 }
        return start > from
    }

    /// Removes and returns a position at the end of the text, such as `000000e8d4a51001.2`.
    mutating func takeLastPlace() -> LogPlace? {
        var (offset, scale): (UInt64, UInt64) = (0, 1)
        while end > start, 48...57 ~= bytes[end - 1] {
            offset += UInt64(bytes[end - 1] - 48) &* scale
            scale = scale &* 10
            end -= 1
        }
        guard scale > 1, end - start > 17, bytes[end - 1] == UInt8(ascii: ".") else { return nil }
        end -= 17
        var epoch: UInt64 = 0
        for byte in bytes[end..<end + 16] {
            switch byte {
            case 48...57: epoch = epoch << 4 | UInt64(byte - 48)
            case 97...102: epoch = epoch << 4 | UInt64(byte - 87)
            default: return nil
            }
        }
        return LogPlace(epoch: epoch, offset: offset)
    }
}

/// Values of a row that a client received.
struct HeardRow {
    var id: Int?
    var owner: String?
    var room: Int?
    var body: String?
    var version: Int?
    /// True if the message contains a value that no row of the model can have.
    var isOdd = false

    init(_ values: [String: Any]) {
        for (name, value) in values {
            switch name {
            case "id": id = value as? Int
            case "owner": owner = value as? String
            case "room": room = value as? Int
            case "body": body = value as? String
            case "version": version = value as? Int
            // No row of the model has values in additional columns.
            default: isOdd = isOdd || !(value is NSNull)
            }
        }
        let known = [id != nil, owner != nil, room != nil, body != nil, version != nil].count { $0 }
        isOdd = isOdd || known != values.keys.count { Self.names.contains($0) }
    }

    private static let names: Set<String> = ["id", "owner", "room", "body", "version"]

    /// True if all received values equal the row's and, for a whole row, none is missing.
    func isSame(as row: ModelRow, isWhole: Bool) -> Bool {
        if isOdd || isWhole && (id == nil || owner == nil || room == nil || body == nil || version == nil) {
            return false
        }
        return (id ?? row.id, room ?? row.room, version ?? row.version) == (row.id, row.room, row.version)
            && (owner ?? row.owner, body ?? row.body) == (row.owner, row.body)
    }

    /// True if more than the key was received.
    var saysMore: Bool { isOdd || owner != nil || room != nil || body != nil || version != nil }
}

/// Change as a client received it. Messages with equal bytes share one object.
final class HeardChange {
    let table: String
    let operation: String
    let record: [String: Any]
    let old: [String: Any]
    let errors: Any?
    let new: HeardRow
    let before: HeardRow
    /// Hash of the change's bytes.
    let trail: UInt64
    /// Number of this change in the `Ledger`; nil until the ledger has found it.
    var ordinal: Int?

    init(
        table: String, operation: String, record: [String: Any], old: [String: Any], errors: Any?, trail: UInt64 = 0
    ) {
        self.table = table
        self.operation = operation
        self.record = record
        self.old = old
        self.errors = errors
        new = HeardRow(record)
        before = HeardRow(old)
        self.trail = trail
    }
}
