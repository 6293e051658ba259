import Crypto
import EventLog
import System
import TestSupport

/// Subscriptions of one channel of a simulated client.
struct Seat: Hashable {
    struct Binding: Hashable {
        var table: ModelTable
        /// Operation of the binding; nil means all operations.
        var operation: ModelOperation?
        /// Room whose rows the binding wants; nil means all rooms.
        var room: Int?
        /// Key of the only row that the binding wants; nil means all rows.
        var row: Int?
    }

    var topic: String
    var bindings: [Binding]
}

/// Event that a channel receives, in the channel's order.
enum Heard {
    /// Reply to the channel's join. If the join asked to resume, the reply has the result.
    case joined(Recovery?)
    /// The channel's bindings are in place.
    case subscribed
    case refused(String)
    case change(HeardChange, Passage?)
    /// Message from the database to the channel's topic, identified by the version of its row.
    case said(Int)
    case truncated(table: String)
    /// The hub has read the client's message that gave the channel to another person.
    case became
    /// Position in the log from which the client may resume later.
    case position(LogPlace)
    /// Notice that changes may be missing or will not be sent.
    case told(String)
    /// Ping that the client's side of the socket answered. The client had read everything before the ping.
    case pinged
    case closed
    /// End of the channel together with its socket.
    case cut
}

enum Recovery: Equatable {
    case recovered
    case refused(String)
}

extension Heard {
    /// True if the hub sends this event only after the reply to the join.
    var followsAnswer: Bool {
        switch self {
        case .subscribed, .told, .truncated, .position: true
        case .joined, .refused, .change, .said, .became, .pinged, .closed, .cut: false
        }
    }

    /// Description of the event for the fingerprint; equal events have equal descriptions.
    var summary: String {
        switch self {
        case .joined(nil): "joined"
        case .joined(.recovered?): "joined again"
        case .joined(.refused(let reason)?): "joined, not again: \(reason)"
        case .subscribed: "subscribed"
        case .became: "became"
        case .position: "position"
        case .refused(let reason): "refused \(reason)"
        case .change(let change, _):
            "\(change.operation) \(change.table) \(change.record["version"] ?? change.old["id"] ?? "")"
        case .said(let version): "said \(version)"
        case .truncated(let table): "truncated \(table)"
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

/// Listener for the events of clients' channels.
protocol Hearing: AnyObject {
    func heard(_ what: Heard, on channel: Int, of client: Int)
    /// Called before the client sends a join that resumes from a position. The hub had sent the position on that
    /// channel.
    func joins(_ seat: Seat, as person: String, on channel: Int, of client: Int, from place: LogPlace?, topic: String)
    /// Called before the join of a client without a position. The hub recognizes this client by its topic.
    func joins(_ seat: Seat, as person: String, on channel: Int, of client: Int, topic: String)
    /// Called before the client sends another join of a channel that it has joined already.
    func joinsAgain(on channel: Int, of client: Int)
    /// Called before the channel's token is replaced by another person's.
    func becomes(_ person: String, on channel: Int, of client: Int)
    /// Called after the client has left the channel.
    func hasGone(_ channel: Int, of client: Int)
}

/// Client of the realtime protocol at one end of a socket pair. It joins channels, sends heartbeats and receives
/// events.
final class Client {
    let number: Int
    private(set) var person: String
    private let hearing: any Hearing
    private let wire: Wire
    private(set) var descriptor: Int32?
    /// Received bytes of a frame whose rest has not arrived.
    private var rest: [UInt8] = []
    private var isUpgraded = false
    private var output: [UInt8] = []
    private var lastRef = 0
    private var mask: SeededRandom
    /// State of the client's channels, joined or not.
    private var lines = [Line](repeating: Line(), count: Simulation.channelsPerClient)
    private(set) var seats: [Int: Seat] = [:]

    private struct Line {
        /// Ref of the join while the channel is joined or joining.
        var joinRef: String?
        /// Topic of the channel. Each join has a new topic, so that messages of an earlier join cannot be mistaken for
        /// its own.
        var topic = ""
        var topicNumber = -1
        /// Number of times that the channel ended while its socket stayed open. After such an end the client does not
        /// resume.
        var endings = 0
        var person: String?
        /// True after the join was answered.
        var isJoined = false
        /// Position up to which the client received everything, with its person and its subscriptions at that position.
        var mark: Mark?
    }

    private struct Mark {
        var place: LogPlace
        var person: String
        var seat: Seat
    }
    /// Channels with a new token. The key is the ref of the heartbeat that the client sent after the token.
    private var tokensSent: [String: Int] = [:]
    var frozenUntil: UInt64 = 0
    private(set) var bytesHeard = 0

    init(_ number: Int, person: String, seed: UInt64, _ wire: Wire, _ hearing: any Hearing) {
        self.number = number
        self.person = person
        self.wire = wire
        self.hearing = hearing
        mask = SeededRandom(seed: seed &+ UInt64(number))
    }

    /// True if the client uses no extensions of the protocol, like Supabase's clients.
    var isPlain: Bool { number % 2 == 1 }

    /// True if the client's token contains a session, by which the hub recognises the client when it returns.
    private var hasSession: Bool { isPlain && number % 4 == 1 }

    var isConnected: Bool { descriptor != nil }

    static let secret = "simulated-secret-of-at-least-32-bytes"

    private func token(of person: String) -> String {
        let session = hasSession ? #","session_id":"\#(number) \#(person)""# : ""
        return wire.token(#"{"sub":"\#(person)","role":"authenticated","exp":4000000000\#(session)}"#) { claims in
            JWT.sign(claims: Array(claims.utf8).span, secret: Array(Self.secret.utf8).span)
        }
    }

    // MARK: The socket

    func connect(_ descriptor: Int32, as person: String) {
        self.person = person
        self.descriptor = descriptor
        isUpgraded = false
        rest = []
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

    /// Closes the socket. Data on its way is lost.
    func cut() {
        if let descriptor = vanish() { StreamSocket.close(descriptor) }
    }

    /// Disconnects the client without the hub noticing. Returns the client's end of the socket, which stays open.
    func vanish() -> Int32? {
        guard let descriptor else { return nil }
        self.descriptor = nil
        for channel in lines.indices where lines[channel].joinRef != nil {
            hearing.heard(isPlain ? .cut : .closed, on: channel, of: number)
            lines[channel].joinRef = nil
        }
        tokensSent = [:]
        return descriptor
    }

    /// True if the client has output that it has not written to the socket yet.
    var hasOutput: Bool { !output.isEmpty }

    /// Reads the data that has arrived. Returns true if there was data, or if the connection ended.
    func read() -> Bool {
        guard let descriptor else { return false }
        write()
        var didRead = false
        while self.descriptor == descriptor {
            let room = wire.room
            let kept = rest.count
            if kept > 0 { room.copyBytes(from: rest) }
            precondition(kept < room.count, "a frame is larger than what is sent at once")
            let free = UnsafeMutableRawBufferPointer(rebasing: room[kept...])
            guard case .moved(let count) = receive(descriptor, free) else { break }
            bytesHeard += count
            didRead = true
            take(UnsafeRawBufferPointer(rebasing: room[..<(kept + count)]))
            // The data did not fill the buffer, so the socket has no more.
            if count < free.count { break }
        }
        return didRead || self.descriptor == nil
    }

    private func receive(_ descriptor: Int32, _ room: UnsafeMutableRawBufferPointer) -> Transfer {
        let transfer = StreamSocket.receive(descriptor, into: room)
        switch transfer {
        case .moved, .wouldBlock: break
        case .finished, .failed: cut()
        }
        return transfer
    }

    private func write() {
        guard let descriptor, !output.isEmpty else { return }
        let transfer = output.withUnsafeBytes { StreamSocket.send(descriptor, $0) }
        if case .moved(let count) = transfer { output.removeFirst(count) }
    }

    private func take(_ bytes: UnsafeRawBufferPointer) {
        var place = 0
        if !isUpgraded {
            guard let end = Self.endOfHead(bytes) else { return rest = Array(bytes) }
            precondition(bytes.starts(with: Array("HTTP/1.1 101".utf8)), "the hub does not take the client")
            place = end
            isUpgraded = true
        }
        while let frame = Self.frame(bytes, at: place) {
            place = frame.end
            let payload = UnsafeRawBufferPointer(rebasing: bytes[frame.payload])
            switch frame.opcode {
            case 1: handle(wire.message(payload))
            case 9: pong(payload)
            case 8: return cut()
            default: break
            }
        }
        rest = place < bytes.count ? Array(bytes[place...]) : []
    }

    private static func endOfHead(_ bytes: UnsafeRawBufferPointer) -> Int? {
        let end = Array("\r\n\r\n".utf8)
        return bytes.indices.first { bytes[$0...].starts(with: end) }.map { $0 + end.count }
    }

    /// Returns the server's frame that begins at a place; nil if it is incomplete. Frames of a server are not masked.
    private static func frame(
        _ bytes: UnsafeRawBufferPointer, at place: Int
    ) -> (opcode: UInt8, payload: Range<Int>, end: Int)? {
        guard bytes.count >= place + 2 else { return nil }
        var (length, start) = (Int(bytes[place + 1] & 127), place + 2)
        if length >= 126 {
            let size = length == 126 ? 2 : 8
            guard bytes.count >= start + size else { return nil }
            length = bytes[start..<start + size].reduce(0) { $0 << 8 | Int($1) }
            start += size
        }
        guard bytes.count >= start + length else { return nil }
        return (bytes[place] & 15, start..<start + length, start + length)
    }

    private func pong(_ payload: UnsafeRawBufferPointer) {
        for channel in lines.indices where lines[channel].isJoined && lines[channel].joinRef != nil {
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
        guard isConnected, lines[channel].joinRef == nil else { return }
        let ref = nextRef()
        let topic = "realtime:\(seat.topic)-\(isPlain ? "again \(lines[channel].endings)" : "\(number)-\(ref)")"
        lines[channel].joinRef = ref
        lines[channel].topic = topic
        lines[channel].topicNumber = wire.topic(topic)
        lines[channel].person = person
        lines[channel].isJoined = false
        seats[channel] = seat
        if isPlain {
            hearing.joins(seat, as: person, on: channel, of: number, topic: topic)
            return sendJoin(seat, to: topic, ref)
        }
        let place = placeToResume(seat, channel)
        hearing.joins(seat, as: person, on: channel, of: number, from: place, topic: topic)
        let resume = place.map { #","resume":"\#(EventLogPosition(epoch: $0.epoch, offset: $0.offset))""# } ?? ""
        send(
            """
            {"topic":"\(topic)","event":"phx_join","ref":"\(ref)","join_ref":"\(ref)",\
            "payload":{"config":{"postgres_changes":[\(Self.text(seat.bindings))],\
            "tidewire":{"position":true\(resume)}}}}
            """)
    }

    /// Sends another join on the same socket without leaving first. The Python client does so after every error
    /// message.
    func joinAgain(on channel: Int) {
        guard isPlain, isConnected, lines[channel].isJoined, lines[channel].joinRef != nil,
            lines[channel].person == person, let seat = seats[channel], !tokensSent.values.contains(channel)
        else { return }
        let ref = nextRef()
        lines[channel].joinRef = ref
        lines[channel].isJoined = false
        hearing.joinsAgain(on: channel, of: number)
        sendJoin(seat, to: lines[channel].topic, ref)
    }

    private func sendJoin(_ seat: Seat, to topic: String, _ ref: String) {
        send(
            """
            {"topic":"\(topic)","event":"phx_join","ref":"\(ref)","join_ref":"\(ref)",\
            "payload":{"config":{"postgres_changes":[\(Self.text(seat.bindings))]}}}
            """)
    }

    private static func text(_ bindings: [Seat.Binding]) -> String {
        bindings.map { binding in
            let condition = binding.row.map { "id=eq.\($0)" } ?? binding.room.map { "room=eq.\($0)" }
            let filter = condition.map { #","filter":"\#($0)""# } ?? ""
            return
                #"{"event":"\#(binding.operation?.rawValue ?? "*")","schema":"public","table":"\#(binding.table.name)"\#(filter)}"#
        }.joined(separator: ",")
    }

    /// Returns the position to resume from. A quarter of the joins begin without a position.
    private func placeToResume(_ seat: Seat, _ channel: Int) -> LogPlace? {
        guard let mark = lines[channel].mark, mark.seat == seat, mark.person == person else { return nil }
        return mask.next() % 4 == 0 ? nil : mark.place
    }

    func leave(_ channel: Int) {
        guard let ref = lines[channel].joinRef else { return }
        lines[channel].joinRef = nil
        lines[channel].endings += 1
        hearing.hasGone(channel, of: number)
        send(
            """
            {"topic":"\(lines[channel].topic)","event":"phx_leave","ref":"\(nextRef())","join_ref":"\(ref)",\
            "payload":{}}
            """)
    }

    /// Replaces the channel's token by another person's.
    func become(_ person: String, on channel: Int) {
        // The hub does not answer a repeated token, because it is not new.
        guard let ref = lines[channel].joinRef, lines[channel].person != person, lines[channel].isJoined else { return }
        lines[channel].person = person
        hearing.becomes(person, on: channel, of: number)
        send(
            """
            {"topic":"\(lines[channel].topic)","event":"access_token","ref":"\(nextRef())","join_ref":"\(ref)",\
            "payload":{"access_token":"\(token(of: person))"}}
            """)
        // The hub reads a socket in order, so its reply to this heartbeat proves that it has read the token.
        tokensSent["\(lastRef + 1)"] = channel
        beat()
    }

    private func handle(_ message: Wire.Message) {
        if message.topic == Wire.phoenix {
            guard case .reply(let ref?, _, _, _) = message.kind, let channel = tokensSent.removeValue(forKey: ref)
            else {
                return
            }
            return hearing.heard(.became, on: channel, of: number)
        }
        guard let channel = lines.firstIndex(where: { $0.topicNumber == message.topic }),
            let joinRef = lines[channel].joinRef
        else { return }
        switch message.kind {
        // A reply to an earlier join of the channel is ignored, because that join has ended.
        case .reply(let ref?, _, _, _) where ref != joinRef: break
        case .reply(_, true, let recovery, _):
            lines[channel].isJoined = true
            hearing.heard(.joined(recovery), on: channel, of: number)
        case .reply(_, false, _, let text):
            hearing.heard(.refused(text), on: channel, of: number)
            end(channel)
        case .told(let text): hearing.heard(.told(text), on: channel, of: number)
        case .subscribed: hearing.heard(.subscribed, on: channel, of: number)
        case .position(let place):
            if let person = lines[channel].person, let seat = seats[channel] {
                // A position that arrives before the hub has read the token belongs to the former person.
                let isOfFormer = tokensSent.values.contains(channel)
                lines[channel].mark = isOfFormer ? nil : Mark(place: place, person: person, seat: seat)
            }
            hearing.heard(.position(place), on: channel, of: number)
        case .change(let change, let passage): hearing.heard(.change(change, passage), on: channel, of: number)
        case .said(let version): hearing.heard(.said(version), on: channel, of: number)
        case .truncated(let table): hearing.heard(.truncated(table: table), on: channel, of: number)
        case .ended:
            end(channel)
            hearing.heard(.closed, on: channel, of: number)
        case .other: break
        }
    }

    /// Returns the joined channel's topic without the protocol's prefix; nil if the channel is not joined.
    func topic(of channel: Int) -> String? {
        lines[channel].joinRef == nil ? nil : String(lines[channel].topic.dropFirst("realtime:".count))
    }

    private func end(_ channel: Int) {
        lines[channel].joinRef = nil
        lines[channel].endings += 1
    }
}
