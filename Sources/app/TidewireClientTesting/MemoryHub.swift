import Foundation
import Synchronization
import TidewireClient

/// A hub in memory for tests of apps. Everything happens at once, on the calling thread, and faults happen only when
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
        /// The client sends more messages a second than allowed. The hub closes the channel, and the client joins
        /// again.
        case tooMany
        /// The user may not write to the room. The hub drops the message and does not answer it.
        case noRight
    }

    /// A message that a client has sent.
    public struct Message: Sendable, Hashable {
        /// Topic of the channel, in the protocol's form: `realtime:` and the name of the room or query.
        public let topic: String
        /// Kind of the message in the protocol: for example `phx_join`, or `broadcast` for a message to a room.
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
        /// Payload sent to every channel as it is: for example a row without its large values, or a malformed one.
        let raw: JSONValue?
    }

    struct Channel {
        let topic: String
        let joinRef: String
        let bindings: [TableBinding]
        let hearsPosition: Bool
        let hearsItself: Bool
        var token: String?
        /// Index of the next entry to send.
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
        /// Index of the oldest entry that the log still has.
        var first = 0
        var peers: [Int: Peer] = [:]
        var nextPeer = 1
        var refusal: Tidewire.Interruption?
        var messageRefusal: MessageRefusal?
        var refusedRooms: Set<String> = []
        var keepsPositions = true
        /// Refusals of the next requests for rows; true if a repetition may help.
        var rowsRefusals: [Bool] = []
        var snapshots = 0
        var requests = 0
        var expired: Set<String> = []
        var messages: [ClientMessage] = []
        var presences: [String: [String: (peer: Int, ref: String, payload: JSONValue)]] = [:]
        var nextPresence = 1
        var connections = 0
        /// Events that wait while other events are delivered, or while the test holds them back.
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
    ///   - key: key columns, by which deletes identify rows.
    ///   - sees: stands for the policies: true if the user of a token may see a row.
    public init(
        key: [String] = ["id"],
        sees: @escaping @Sendable (_ token: String?, _ table: String, _ row: [String: JSONValue]) -> Bool = { _, _, _ in
            true
        }
    ) {
        self.key = key
        self.sees = sees
    }

    /// Address of the hub, for code that needs one.
    public let url = URL(string: "ws://hub.test") ?? URL(fileURLWithPath: "/")

    // MARK: Changes in the database

    /// Inserts a row in a transaction of its own.
    public func insert(_ table: String, _ row: [String: JSONValue]) { commit([(table, [:], row)]) }

    /// Updates a row in a transaction of its own.
    public func update(_ table: String, from old: [String: JSONValue], to new: [String: JSONValue]) {
        commit([(table, old, new)])
    }

    /// Deletes a row in a transaction of its own.
    public func delete(_ table: String, _ row: [String: JSONValue]) { commit([(table, row, [:])]) }

    /// Commits several changes in one transaction. Each has a table, the old row and the new row; an empty row means
    /// none.
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

    /// Sends a change exactly as given.
    public func tell(_ data: JSONValue) {
        state.withLock { state in
            let table = data["table"]?.text ?? ""
            state.log.append(Entry(kind: "", table: table, new: [:], old: [:], commit: "", raw: data))
            deliver(&state)
        }
        flush()
    }

    /// Sends a message of another client to a room.
    ///
    /// - Parameters:
    ///   - payload: content of the message.
    ///   - event: name by which receivers choose the message.
    ///   - topic: name of the room.
    public func broadcast(_ payload: JSONValue, event: String, to topic: String) {
        state.withLock { state in say(event, payload, to: "realtime:" + topic, but: nil, &state) }
        flush()
    }

    /// Sends a message of another client to a room, with bytes in place of JSON.
    ///
    /// - Parameters:
    ///   - bytes: content of the message.
    ///   - event: name by which receivers choose the message.
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

    /// Ends all connections.
    public func cut(code: Int = 1006, reason: String = "") {
        state.withLock { state in
            for peer in state.peers.keys.sorted() {
                state.outbox.append((peer, .ended(.closed(code: code, reason: reason))))
                leave(peer, &state)
            }
        }
        flush()
    }

    /// Refuses all new connections until it is called with nil.
    public func refuseConnections(_ refusal: Tidewire.Interruption?) { state.withLock { $0.refusal = refusal } }

    /// Holds all messages back until `release` is called.
    public func hold() { state.withLock { $0.isHeld = true } }

    /// Sends all messages that `hold` held back, and later ones at once.
    public func release() {
        state.withLock { $0.isHeld = false }
        flush()
    }

    /// Removes all entries of the log but the latest.
    public func retain(latest count: Int) { state.withLock { $0.first = max($0.first, $0.log.count - count) } }

    /// Simulates a gap in history: a new epoch begins, and all connections end.
    public func loseHistory() {
        state.withLock { state in
            state.epoch += "x"
            state.first = state.log.count
        }
        cut()
    }

    /// Makes the hub a server of the same protocol that keeps no positions.
    public func forgetPositions() { state.withLock { $0.keepsPositions = false } }

    /// Refuses the next requests for rows. If `mayHelp` is true, the client asks again.
    public func refuseRows(times: Int, mayHelp: Bool = true) {
        state.withLock { $0.rowsRefusals += Array(repeating: mayHelp, count: times) }
    }

    /// Refuses messages that clients send to rooms, until it is called with nil.
    public func refuseMessages(_ refusal: MessageRefusal?) { state.withLock { $0.messageRefusal = refusal } }

    /// Takes the rights on a room from all users: ends its channels, and refuses joins.
    public func refuseRoom(_ topic: String) {
        state.withLock { state in
            state.refusedRooms.insert("realtime:" + topic)
            for (peer, channel) in channels(&state) where channel.topic == "realtime:" + topic {
                close(peer, channel, "RightsLost", "You no longer have permission to read this topic", &state)
            }
        }
        flush()
    }

    /// Expires a token: its channels end, and it can join no new ones.
    public func expire(_ token: String) {
        state.withLock { state in
            state.expired.insert(token)
            for (peer, channel) in channels(&state) where channel.token == token {
                close(peer, channel, "TokenExpired", "Token has expired 0 seconds ago", &state)
            }
        }
        flush()
    }

    /// Sends a system message to every channel.
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

    /// Stops answering heartbeats: sockets look open but are dead.
    public func fallSilent() { state.withLock { $0.answersHeartbeats = false } }

    // MARK: Counters for tests

    /// Messages that clients have sent, in order.
    public var messages: [Message] { state.withLock { $0.messages.map(Message.init) } }
    /// Number of times that the hub sent all existing rows.
    public var snapshots: Int { state.withLock { $0.snapshots } }
    /// Number of requests over HTTP.
    public var requests: Int { state.withLock { $0.requests } }
    /// Number of connections that clients have made.
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
