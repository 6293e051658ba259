import Crypto
import EventLog
import Foundation
import System
import TestSupport

/// What a channel of a simulated client asks for.
struct Seat: Hashable {
    struct Binding: Hashable {
        var table: ModelTable
        /// Nil is all.
        var operation: ModelOperation?
        /// Only rows of this room.
        var room: Int?
        /// Only this row, by its key.
        var row: Int?
    }

    var topic: String
    var bindings: [Binding]
}

/// Something that came to a channel, in its order.
enum Heard {
    /// The reply to its join, and what it says of where it asked to go on.
    case joined(Recovery?)
    /// Its bindings are in place.
    case subscribed
    case refused(String)
    case change(HeardChange)
    /// The hub has read what the client said when the channel became another person's.
    case became
    /// Where the log is read, for whoever resumes there later.
    case position(LogPlace)
    /// Something may be missing, or will not come.
    case told(String)
    /// All before it has been read, and the client's side of the socket says so.
    case pinged
    case closed
    /// With the socket.
    case cut
}

enum Recovery: Equatable {
    case recovered
    case refused(String)
}

extension Heard {
    /// The same for the same.
    var summary: String {
        switch self {
        case .joined(nil): "joined"
        case .joined(.recovered?): "joined again"
        case .joined(.refused(let reason)?): "joined, not again: \(reason)"
        case .subscribed: "subscribed"
        case .became: "became"
        case .position: "position"
        case .refused(let reason): "refused \(reason)"
        case .change(let change):
            "\(change.operation) \(change.table) \(change.record["version"] ?? change.old["id"] ?? "")"
        case .told(let text): "told \(text)"
        case .pinged: "pinged"
        case .cut: "cut"
        case .closed: "closed"
        }
    }
}

struct LogPlace: Equatable {
    var epoch: UInt64
    var offset: UInt64
}

struct HeardChange {
    var table: String
    var operation: String
    var record: [String: Any]
    var old: [String: Any]
    var errors: Any?
}

/// Who listens to what a client's channels hear.
protocol Hearing: AnyObject {
    func heard(_ what: Heard, on channel: Int, of client: Int)
    /// The client is about to send a join, which goes on from a place that it was told of on that channel.
    func joins(_ seat: Seat, as person: String, on channel: Int, of client: Int, from place: LogPlace?)
    /// Likewise of one that asks for nothing and is known again by its topic.
    func joins(_ seat: Seat, as person: String, on channel: Int, of client: Int, topic: String)
    /// The channel's token is about to be another person's.
    func becomes(_ person: String, on channel: Int, of client: Int)
    /// The client has left the channel.
    func hasGone(_ channel: Int, of client: Int)
}

/// A client of the real-time protocol over one end of a socket pair: it joins, beats, and hears.
final class Client {
    let number: Int
    private(set) var person: String
    private let hearing: any Hearing
    private var descriptor: Int32?
    private var input: [UInt8] = []
    private var isUpgraded = false
    private var output: [UInt8] = []
    private var lastRef = 0
    private var mask: SeededRandom
    /// The join refs of channels that are joined or being joined, by channel.
    private(set) var joinRefs: [Int: String] = [:]
    private(set) var seats: [Int: Seat] = [:]
    /// Each join has a topic of its own, so that nothing of an earlier one is taken for its own.
    private var topics: [Int: String] = [:]
    /// How often each channel ended otherwise than with its socket: then it is not taken up again.
    private var endings: [Int: Int] = [:]
    /// Whose each channel is.
    private var persons: [Int: String] = [:]
    /// Channels whose joins were answered.
    private var joined: Set<Int> = []
    /// Up to where each channel was told everything, as who, and of what.
    private var marks: [Int: Mark] = [:]

    private struct Mark {
        var place: LogPlace
        var person: String
        var seat: Seat
    }
    /// Heartbeats that were sent behind a token, by their refs.
    private var tokensSent: [String: Int] = [:]
    var frozenUntil: UInt64 = 0
    private(set) var bytesHeard = 0

    init(_ number: Int, person: String, seed: UInt64, _ hearing: any Hearing) {
        self.number = number
        self.person = person
        self.hearing = hearing
        mask = SeededRandom(seed: seed &+ UInt64(number))
    }

    /// It asks for nothing beyond what clients ask for, as those do that people have.
    var isPlain: Bool { number % 2 == 1 }

    var isConnected: Bool { descriptor != nil }

    static let secret = "simulated-secret-of-at-least-32-bytes"

    private func token(of person: String) -> String {
        let session = isPlain ? #","session_id":"\#(number) \#(person)""# : ""
        let claims = Array(
            #"{"sub":"\#(person)","role":"authenticated","exp":4000000000\#(session)}"#.utf8)
        return JWT.sign(claims: claims.span, secret: Array(Self.secret.utf8).span)
    }

    // MARK: The socket

    func connect(_ descriptor: Int32, as person: String) {
        self.person = person
        self.descriptor = descriptor
        isUpgraded = false
        input = []
        output = Array(
            """
            GET /realtime/v1/websocket?apikey=\(token(of: person))&vsn=1.0.0 HTTP/1.1\r
            Host: simulated\r
            Upgrade: websocket\r
            Connection: Upgrade\r
            Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r
            Sec-WebSocket-Version: 13\r
            \r

            """.utf8)
        write()
    }

    /// The socket is gone, with all that was on its way.
    func cut() {
        guard let descriptor else { return }
        StreamSocket.close(descriptor)
        self.descriptor = nil
        for channel in joinRefs.keys.sorted() {
            hearing.heard(isPlain ? .cut : .closed, on: channel, of: number)
        }
        joinRefs = [:]
        tokensSent = [:]
    }

    /// Reads what has come; true where anything had.
    func read() -> Bool {
        guard let descriptor else { return false }
        write()
        var buffer = [UInt8](repeating: 0, count: 16 << 10)
        var didRead = false
        while true {
            let transfer = buffer.withUnsafeMutableBytes { StreamSocket.receive(descriptor, into: $0) }
            guard case .moved(let count) = transfer else {
                if case .wouldBlock = transfer { break }
                take()
                cut()
                return true
            }
            bytesHeard += count
            input.append(contentsOf: buffer[..<count])
            didRead = true
        }
        if didRead { take() }
        return didRead
    }

    private func write() {
        guard let descriptor, !output.isEmpty else { return }
        let transfer = output.withUnsafeBytes { StreamSocket.send(descriptor, $0) }
        if case .moved(let count) = transfer { output.removeFirst(count) }
    }

    private func take() {
        if !isUpgraded {
            guard let end = input.firstRange(of: Array("\r\n\r\n".utf8)) else { return }
            precondition(input.starts(with: Array("HTTP/1.1 101".utf8)), "the hub does not take the client")
            input.removeFirst(end.upperBound)
            isUpgraded = true
        }
        while let (opcode, payload) = nextFrame() {
            if opcode == 1 { handle(payload) }
            if opcode == 9 { pong(payload) }
            if opcode == 8 { return cut() }
        }
    }

    /// A server's frames are whole and not masked.
    private func nextFrame() -> (opcode: UInt8, payload: ArraySlice<UInt8>)? {
        guard input.count >= 2 else { return nil }
        var (length, start) = (Int(input[1] & 127), 2)
        if length >= 126 {
            let size = length == 126 ? 2 : 8
            guard input.count >= 2 + size else { return nil }
            length = input[2..<2 + size].reduce(0) { $0 << 8 | Int($1) }
            start = 2 + size
        }
        guard input.count >= start + length else { return nil }
        let (opcode, payload) = (input[0] & 15, Array(input[start..<start + length]))
        input.removeFirst(start + length)
        return (opcode, payload[...])
    }

    private func pong(_ payload: ArraySlice<UInt8>) {
        for channel in joined.sorted() where joinRefs[channel] != nil {
            hearing.heard(.pinged, on: channel, of: number)
        }
        send(Array(payload), opcode: 10)
    }

    private func send(_ text: String) { send(Array(text.utf8), opcode: 1) }

    private func send(_ payload: [UInt8], opcode: UInt8) {
        let key = (0..<4).map { _ in UInt8.random(in: 0...255, using: &mask) }
        output.append(0x80 | opcode)
        switch payload.count {
        case ..<126: output.append(0x80 | UInt8(payload.count))
        case ..<65536:
            output += [0x80 | 126, UInt8(payload.count >> 8), UInt8(payload.count & 255)]
        default: preconditionFailure("a client says little")
        }
        output += key
        for (place, byte) in payload.enumerated() { output.append(byte ^ key[place & 3]) }
        write()
    }

    // MARK: The protocol

    private func nextRef() -> String {
        lastRef += 1
        return "\(lastRef)"
    }

    func beat() {
        if isConnected {
            send(#"{"topic":"phoenix","event":"heartbeat","payload":{},"ref":"\#(nextRef())"}"#)
        }
    }

    func join(_ seat: Seat, on channel: Int) {
        guard isConnected, joinRefs[channel] == nil else { return }
        let bindings = seat.bindings.map { binding in
            let condition = binding.row.map { "id=eq.\($0)" } ?? binding.room.map { "room=eq.\($0)" }
            let filter = condition.map { #","filter":"\#($0)""# } ?? ""
            return
                #"{"event":"\#(binding.operation?.rawValue ?? "*")","schema":"public","table":"\#(binding.table.name)"\#(filter)}"#
        }.joined(separator: ",")
        let ref = nextRef()
        joinRefs[channel] = ref
        seats[channel] = seat
        let topic = "realtime:\(seat.topic)-\(isPlain ? "again \(endings[channel, default: 0])" : ref)"
        topics[channel] = topic
        persons[channel] = person
        joined.remove(channel)
        if isPlain {
            hearing.joins(seat, as: person, on: channel, of: number, topic: topic)
            return send(
                """
                {"topic":"\(topic)","event":"phx_join","ref":"\(ref)","join_ref":"\(ref)",\
                "payload":{"config":{"postgres_changes":[\(bindings)]}}}
                """)
        }
        let place = placeToResume(seat, channel)
        hearing.joins(seat, as: person, on: channel, of: number, from: place)
        let resume = place.map { #","resume":"\#(EventLogPosition(epoch: $0.epoch, offset: $0.offset))""# } ?? ""
        send(
            """
            {"topic":"\(topic)","event":"phx_join","ref":"\(ref)","join_ref":"\(ref)",\
            "payload":{"config":{"postgres_changes":[\(bindings)],"tidewire":{"position":true\(resume)}}}}
            """)
    }

    /// Most come back to where they were; some begin anew.
    private func placeToResume(_ seat: Seat, _ channel: Int) -> LogPlace? {
        guard let mark = marks[channel], mark.seat == seat, mark.person == person else { return nil }
        return mask.next() % 4 == 0 ? nil : mark.place
    }

    func leave(_ channel: Int) {
        guard let ref = joinRefs.removeValue(forKey: channel), let topic = topics[channel] else { return }
        endings[channel, default: 0] += 1
        hearing.hasGone(channel, of: number)
        send(
            """
            {"topic":"\(topic)","event":"phx_leave","ref":"\(nextRef())","join_ref":"\(ref)","payload":{}}
            """)
    }

    /// The channel is another person's from here on.
    func become(_ person: String, on channel: Int) {
        // The same token once more says nothing new, and is not answered.
        guard let ref = joinRefs[channel], let topic = topics[channel], persons[channel] != person,
            joined.contains(channel)
        else { return }
        persons[channel] = person
        hearing.becomes(person, on: channel, of: number)
        send(
            """
            {"topic":"\(topic)","event":"access_token","ref":"\(nextRef())","join_ref":"\(ref)",\
            "payload":{"access_token":"\(token(of: person))"}}
            """)
        // What a socket says is read in its order, so the answer to this says that the token was read.
        tokensSent["\(lastRef + 1)"] = channel
        beat()
    }

    private func handle(_ payload: ArraySlice<UInt8>) {
        guard let message = try? JSONSerialization.jsonObject(with: Data(payload)) as? [String: Any],
            let topic = message["topic"] as? String, let event = message["event"] as? String
        else { preconditionFailure("the hub does not say JSON: \(String(decoding: payload, as: UTF8.self))") }
        if topic == "phoenix", let ref = message["ref"] as? String, let channel = tokensSent.removeValue(forKey: ref) {
            return hearing.heard(.became, on: channel, of: number)
        }
        guard let channel = topics.first(where: { $0.value == topic })?.key else { return }
        let content = message["payload"] as? [String: Any] ?? [:]
        // What was said to a join that has ended since is for nobody.
        if let ref = message["join_ref"] as? String ?? message["ref"] as? String, event == "phx_reply",
            joinRefs[channel] != ref
        {
            return
        }
        guard joinRefs[channel] != nil else { return }
        switch event {
        case "phx_reply":
            if content["status"] as? String == "ok" {
                joined.insert(channel)
                hearing.heard(.joined(Self.recovery(in: content)), on: channel, of: number)
            } else {
                hearing.heard(.refused("\(content["response"] ?? "")"), on: channel, of: number)
                joinRefs[channel] = nil
                endings[channel, default: 0] += 1
            }
        case "system": hear(of: content, on: channel)
        case "postgres_changes": hear(change: content["data"] as? [String: Any] ?? [:], on: channel)
        case "phx_close", "phx_error":
            joinRefs[channel] = nil
            endings[channel, default: 0] += 1
            hearing.heard(.closed, on: channel, of: number)
        default: break
        }
    }

    private static func recovery(in content: [String: Any]) -> Recovery? {
        let response = content["response"] as? [String: Any]
        let standing = response?["tidewire"] as? [String: Any]
        guard let recovered = standing?["recovered"] as? Bool else { return nil }
        return recovered ? .recovered : .refused(standing?["reason"] as? String ?? "")
    }

    private func hear(of content: [String: Any], on channel: Int) {
        let message = content["message"] as? String ?? ""
        if content["status"] as? String == "error" || message.contains("missing") {
            hearing.heard(.told(message), on: channel, of: number)
        } else if message == "Subscribed to PostgreSQL" {
            hearing.heard(.subscribed, on: channel, of: number)
        } else if let place = (content["position"] as? String)?.wholeMatch(of: /([0-9a-f]{16})\.(\d+)/),
            let epoch = UInt64(place.1, radix: 16), let offset = UInt64(place.2)
        {
            let place = LogPlace(epoch: epoch, offset: offset)
            if let person = persons[channel], let seat = seats[channel] {
                marks[channel] = Mark(place: place, person: person, seat: seat)
            }
            hearing.heard(.position(place), on: channel, of: number)
        }
    }

    private func hear(change data: [String: Any], on channel: Int) {
        hearing.heard(
            .change(
                HeardChange(
                    table: data["table"] as? String ?? "", operation: data["type"] as? String ?? "",
                    record: data["record"] as? [String: Any] ?? [:],
                    old: data["old_record"] as? [String: Any] ?? [:],
                    errors: data["errors"] is NSNull ? nil : data["errors"])),
            on: channel, of: number)
    }
}
