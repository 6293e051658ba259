import Foundation
import Synchronization
import TidewireClient

/// A hub in memory, for tests of apps. Calls take effect immediately, on the calling thread. Faults happen only when
/// the test causes them.
///
/// ```swift
/// let (hub, clock) = (MemoryHub(), ManualClock())
/// let tidewire = Tidewire(hub: hub, token: "ana", clock: clock)
/// hub.insert("expenses", ["id": 1, "owner_id": "ana"])
/// hub.cut(code: 1012)
/// clock.advance(by: .milliseconds(500))
/// ```
public final class MemoryHub: Transport, Sendable {
    /// Reason why the hub refuses messages that clients send to rooms.
    public enum MessageRefusal: Sendable, Hashable {
        /// The message is larger than allowed.
        case tooLarge
        /// The client sends messages faster than allowed. The hub closes the channel, and the client joins again.
        case tooMany
        /// The user may not write to the room. The hub drops the message and does not answer it.
        case noRight
    }

    /// A message that a client has sent.
    public struct Message: Sendable, Hashable {
        /// Topic of the channel: `realtime:` followed by the name of the room or query.
        public let topic: String
        /// Event of the message in the protocol, for example `phx_join`, or `broadcast` for a message to a room.
        public let event: String
        /// Content of the message.
        public let payload: JSONValue

        init(_ message: ClientMessage) {
            (topic, event, payload) = (message.topic, message.event, message.payload)
        }
    }

    struct Entry {
        let kind: String
        let table: String
        let new: [String: JSONValue]
        let old: [String: JSONValue]
        let commit: String
        /// Payload that every channel gets unchanged in place of a change, for example a malformed row; nil for an
        /// ordinary change.
        let raw: JSONValue?
    }

    struct Channel {
        let topic: String
        let joinRef: String
        let bindings: [TableBinding]
        let hearsPosition: Bool
        let hearsItself: Bool
        var token: String?
        /// Index of the next log entry to send to the channel.
        var cursor: Int
        var previous: String
        let presenceKey: String
    }

    struct Peer {
        let hear: @Sendable (TransportEvent) -> Void
        var channels: [String: Channel] = [:]
    }

    struct State {
        var epoch = "e1"
        var log: [Entry] = []
        /// Index of the oldest entry that the log still contains.
        var first = 0
        var peers: [Int: Peer] = [:]
        var nextPeer = 1
        var refusal: Tidewire.Interruption?
        var messageRefusal: MessageRefusal?
        var refusedRooms: Set<String> = []
        var keepsPositions = true
        /// Refusals for the next requests for existing rows, one each. True means that the client may ask again.
        var rowsRefusals: [Bool] = []
        var snapshots = 0
        var requests = 0
        var expired: Set<String> = []
        var messages: [ClientMessage] = []
        var presences: [String: [String: (peer: Int, ref: String, payload: JSONValue)]] = [:]
        var nextPresence = 1
        var connections = 0
        /// Events for clients that wait, because the hub is delivering other events or the test holds them back.
        var outbox: [(peer: Int, event: TransportEvent)] = []
        var isDelivering = false
        var isHeld = false
        var commits = 0
        var answersHeartbeats = true
    }

    let state = Mutex(State())
    let sees: @Sendable (_ token: String?, _ table: String, _ row: [String: JSONValue]) -> Bool
    let key: [String]

    /// Creates a hub with an empty log.
    ///
    /// - Parameters:
    ///   - key: names of the key columns, which identify rows in deletes.
    ///   - sees: takes the place of row policies: returns true if the user with this token may see a row.
    public init(
        key: [String] = ["id"],
        sees: @escaping @Sendable (_ token: String?, _ table: String, _ row: [String: JSONValue]) -> Bool = { _, _, _ in
            true
        }
    ) {
        self.key = key
        self.sees = sees
    }

    /// URL of the hub, for code that needs one.
    public let url = URL(string: "ws://hub.test") ?? URL(fileURLWithPath: "/")

    // MARK: Changes in the database

    /// Inserts a row, in a separate transaction.
    public func insert(_ table: String, _ row: [String: JSONValue]) { commit([(table, [:], row)]) }

    /// Updates a row, in a separate transaction.
    public func update(_ table: String, from old: [String: JSONValue], to new: [String: JSONValue]) {
        commit([(table, old, new)])
    }

    /// Deletes a row, in a separate transaction.
    public func delete(_ table: String, _ row: [String: JSONValue]) { commit([(table, row, [:])]) }

    /// Commits several changes in one transaction. Each change has a table, an old row and a new row. An empty row
    /// means that there is none.
    public func commit(_ changes: [(table: String, old: [String: JSONValue], new: [String: JSONValue])]) {
        state.withLock { state in
            state.commits += 1
            let number = String(state.commits)
            let commit = "2026-01-01T00:00:00." + String(repeating: "0", count: max(0, 3 - number.count)) + number + "Z"
            for (table, old, new) in changes {
                let kind = old.isEmpty ? "INSERT" : new.isEmpty ? "DELETE" : "UPDATE"
                state.log.append(Entry(kind: kind, table: table, new: new, old: old, commit: commit, raw: nil))
            }
            deliver(&state)
        }
        flush()
    }

    /// Sends a change to the clients exactly as it is given.
    public func tell(_ data: JSONValue) {
        state.withLock { state in
            let table = data["table"]?.text ?? ""
            state.log.append(Entry(kind: "", table: table, new: [:], old: [:], commit: "", raw: data))
            deliver(&state)
        }
        flush()
    }

    /// Sends a message to a room, as if another client had sent it.
    ///
    /// - Parameters:
    ///   - payload: content of the message.
    ///   - event: name of the message, by which receivers select messages.
    ///   - topic: name of the room.
    public func broadcast(_ payload: JSONValue, event: String, to topic: String) {
        state.withLock { state in say(event, payload, to: "realtime:" + topic, but: nil, &state) }
        flush()
    }

    /// Sends a message with bytes instead of JSON to a room, as if another client had sent it.
    ///
    /// - Parameters:
    ///   - bytes: content of the message.
    ///   - event: name of the message, by which receivers select messages.
    ///   - topic: name of the room.
    public func broadcast(bytes: [UInt8], event: String, to topic: String) {
        let (name, event) = (Array("realtime:\(topic)".utf8), Array(event.utf8))
        let frame = [4, UInt8(name.count), UInt8(event.count), 0, 0] + name + event + bytes
        state.withLock { state in
            for (peer, channel) in channels(&state) where channel.topic == "realtime:" + topic {
                state.outbox.append((peer, .bytes(frame)))
            }
        }
        flush()
    }

    // MARK: Faults

    /// Ends all connections with a close code.
    public func cut(code: Int = 1006, reason: String = "") {
        state.withLock { state in
            for peer in state.peers.keys.sorted() {
                state.outbox.append((peer, .ended(.closed(code: code, reason: reason))))
                leave(peer, &state)
            }
        }
        flush()
    }

    /// Refuses all new connections for the given reason. Nil ends the refusal.
    public func refuseConnections(_ refusal: Tidewire.Interruption?) { state.withLock { $0.refusal = refusal } }

    /// Holds back everything that the hub sends, until `release` is called.
    public func hold() { state.withLock { $0.isHeld = true } }

    /// Sends everything that `hold` held back. Later messages are sent without delay.
    public func release() {
        state.withLock { $0.isHeld = false }
        flush()
    }

    /// Removes all log entries except the last `count` ones.
    public func retain(latest count: Int) { state.withLock { $0.first = max($0.first, $0.log.count - count) } }

    /// Simulates a gap in the log: a new epoch begins, and all connections end.
    public func loseHistory() {
        state.withLock { state in
            state.epoch += "x"
            state.first = state.log.count
        }
        cut()
    }

    /// Makes the hub behave like a server of the same protocol that has no log positions.
    public func forgetPositions() { state.withLock { $0.keepsPositions = false } }

    /// Refuses the next `times` requests for rows. With `mayHelp` the client asks again.
    public func refuseRows(times: Int, mayHelp: Bool = true) {
        state.withLock { $0.rowsRefusals += Array(repeating: mayHelp, count: times) }
    }

    /// Refuses messages that clients send to rooms, for the given reason. Nil ends the refusal.
    public func refuseMessages(_ refusal: MessageRefusal?) { state.withLock { $0.messageRefusal = refusal } }

    /// Removes all users' right to a room: ends its channels, and refuses new joins.
    public func refuseRoom(_ topic: String) {
        state.withLock { state in
            state.refusedRooms.insert("realtime:" + topic)
            for (peer, channel) in channels(&state) where channel.topic == "realtime:" + topic {
                close(peer, channel, "RightsLost", "You no longer have permission to read this topic", &state)
            }
        }
        flush()
    }

    /// Makes a token expire: its channels end, and it can join no new ones.
    public func expire(_ token: String) {
        state.withLock { state in
            state.expired.insert(token)
            for (peer, channel) in channels(&state) where channel.token == token {
                close(peer, channel, "TokenExpired", "Token has expired 0 seconds ago", &state)
            }
        }
        flush()
    }

    /// Sends a system message with this code and text to every channel.
    public func announce(code: String, _ message: String, isError: Bool = true) {
        state.withLock { state in
            for (peer, channel) in channels(&state) {
                let words: JSONValue = [
                    "extension": "system", "status": isError ? "error" : "ok", "code": .string(code),
                    "message": .string(message), "channel": .string(channel.topic),
                ]
                send(peer, channel.joinRef, nil, channel.topic, "system", words, &state)
            }
        }
        flush()
    }

    /// Stops answering heartbeats, as if the connections looked open but no longer worked.
    public func fallSilent() { state.withLock { $0.answersHeartbeats = false } }

    // MARK: Counters for tests

    /// Messages that clients have sent to the hub, in order.
    public var messages: [Message] { state.withLock { $0.messages.map(Message.init) } }
    /// Number of times that the hub sent a snapshot of all existing rows.
    public var snapshots: Int { state.withLock { $0.snapshots } }
    /// Number of HTTP requests that clients have sent to the hub.
    public var requests: Int { state.withLock { $0.requests } }
    /// Number of connections that clients have opened.
    public var connections: Int { state.withLock { $0.connections } }
    /// Number of connections that are open now.
    public var openConnections: Int { state.withLock { $0.peers.count } }
    /// Number of channels that are joined now.
    public var openChannels: Int { state.withLock { $0.peers.values.reduce(0) { $0 + $1.channels.count } } }

    // MARK: The transport

    package func connect(
        to request: TransportRequest, hear: @escaping @Sendable (TransportEvent) -> Void
    ) -> any TransportConnection {
        let peer = state.withLock { state in
            let peer = state.nextPeer
            state.nextPeer += 1
            state.connections += 1
            state.peers[peer] = Peer(hear: hear)
            state.outbox.append((peer, state.refusal.map { .ended($0) } ?? .opened))
            return peer
        }
        flush()
        return MemoryConnection(hub: self, peer: peer)
    }

    func flush() {
        while true {
            let next = state.withLock { state -> (@Sendable () -> Void)? in
                guard !state.isDelivering, !state.isHeld, !state.outbox.isEmpty else { return nil }
                state.isDelivering = true
                let (peer, event) = state.outbox.removeFirst()
                let hear = state.peers[peer]?.hear
                if case .ended = event { state.peers[peer] = nil }
                return { hear?(event) }
            }
            guard let next else { return }
            next()
            state.withLock { $0.isDelivering = false }
        }
    }
}

private struct MemoryConnection: TransportConnection {
    let hub: MemoryHub
    let peer: Int

    func send(_ text: String) { hub.received(text, from: peer) }
    func close() { hub.closed(peer) }
}
