import Foundation
import Synchronization

/// Clients that are present, by key, with their tracked state.
public typealias Presences = [String: [JSONValue]]

public enum RoomEvent: Sendable, Hashable {
    case message(event: String, payload: JSONValue, bytes: [UInt8]?)
    /// The changes of presence, and the present state. Clients that left while the connection was lost are in `left`.
    case presence(joined: Presences, left: Presences, now: Presences)
    case joined
    case problem(TidewireProblem)
}

/// Treatment of a message while the room is not joined.
public enum WhenOffline: Sendable, Hashable {
    case drop
    /// The message waits for the join, at most for this time. At most 100 messages wait.
    case queue(atMost: Duration)
    case fail
}

extension Tidewire {
    /// Opens a room: a topic on which clients send messages to each other and see who is present.
    ///
    /// - Parameter presenceKey: key under which this client is present; nil to receive no presence.
    public func room(
        _ topic: String, isPrivate: Bool = false, presenceKey: String? = nil, hearsItself: Bool = false
    ) -> TidewireRoom {
        var request = ChannelRequest(topic: topic)
        request.isPrivate = isPrivate
        request.presenceKey = presenceKey
        request.hearsItself = hearsItself
        return TidewireRoom(engine, request)
    }
}

/// A room, joined as long as the object exists.
public final class TidewireRoom: Sendable {
    private struct Waiting: Sendable {
        let event: String
        let payload: JSONValue
        let until: Duration
    }

    private struct State {
        var presence = PresenceBook()
        var isJoined = false
        var waiting: [Waiting] = []
        var listeners: [Int: Mailbox<RoomEvent>] = [:]
        var next = 0
        var channel: Int?
    }

    static let maximumWaiting = 100

    private let engine: Engine
    private let state: Shared

    /// State that the engine's outputs use, and that may outlive the room briefly.
    private final class Shared: Sendable {
        let value = Mutex(State())
    }

    init(_ engine: Engine, _ request: ChannelRequest) {
        self.engine = engine
        let state = Shared()
        self.state = state
        let channel = engine.enter(request) { [weak engine] output in
            guard let engine else { return }
            Self.hear(output, state, engine)
        }
        state.value.withLock { $0.channel = channel }
        Self.sendWaiting(state, engine)
    }

    deinit {
        guard let channel = state.value.withLock({ $0.channel }) else { return }
        engine.leave(channel)
    }

    // MARK: Sending

    /// Sends a message; returns nil when the server has it. While the room is not joined, `.drop` and `.queue` return
    /// at once.
    @discardableResult
    public func send(_ event: String, _ payload: JSONValue, whenOffline: WhenOffline = .drop) async -> TidewireProblem?
    {
        let body = Self.body(event, payload)
        let (isJoined, channel) = state.value.withLock { ($0.isJoined, $0.channel) }
        if isJoined, let channel { return await engine.push(channel, event: "broadcast", payload: body) }
        switch whenOffline {
        case .drop: return nil
        case .fail: return ChannelMachine.notJoined
        case .queue(let patience):
            let until = engine.clock.now + patience
            return state.value.withLock { state in
                guard state.waiting.count < Self.maximumWaiting else {
                    return TidewireProblem(
                        code: "TooManyWaiting", message: "\(Self.maximumWaiting) messages wait for the room",
                        severity: .error)
                }
                state.waiting.append(Waiting(event: event, payload: payload, until: until))
                return nil
            }
        }
    }

    private static func body(_ event: String, _ payload: JSONValue) -> JSONValue {
        ["type": "broadcast", "event": .string(event), "payload": payload]
    }

    private static func sendWaiting(_ state: Shared, _ engine: Engine) {
        let (channel, waiting) = state.value.withLock { state -> (Int?, [Waiting]) in
            guard state.isJoined, state.channel != nil else { return (nil, []) }
            defer { state.waiting = [] }
            return (state.channel, state.waiting)
        }
        guard let channel else { return }
        for message in waiting where message.until >= engine.clock.now {
            let body = body(message.event, message.payload)
            engine.handle(.push(channel: channel, number: 0, event: "broadcast", payload: body))
        }
    }

    /// Makes this client present with a payload, again after every rejoin. Nil ends its presence.
    public func track(_ payload: JSONValue?) {
        guard let channel = state.value.withLock({ $0.channel }) else { return }
        engine.handle(.track(channel: channel, payload))
    }

    // MARK: Receiving

    public var presences: Presences { state.value.withLock { $0.presence.now } }

    /// Events from now on.
    public var events: RoomEvents { RoomEvents(room: self) }

    private static func hear(_ output: ChannelMachine.Output, _ state: Shared, _ engine: Engine) {
        let listeners = state.value.withLock { state -> ([Mailbox<RoomEvent>], RoomEvent?) in
            (Array(state.listeners.values), event(of: output, &state))
        }
        if let event = listeners.1 {
            for listener in listeners.0 where listener.count < maximumUnheard { listener.put(event) }
        }
        if case .caughtUp = output { sendWaiting(state, engine) }
    }

    /// Maximum number of events that wait for a slow listener. Messages are not stored, so the listener misses further
    /// ones.
    static let maximumUnheard = 1000

    private static func event(of output: ChannelMachine.Output, _ state: inout State) -> RoomEvent? {
        switch output {
        case .broadcast(let event, let payload, let bytes):
            return .message(event: event, payload: payload, bytes: bytes)
        case .caughtUp:
            state.isJoined = true
            return .joined
        case .lost:
            state.isJoined = false
            return nil
        case .presenceState(let told): return told.object.flatMap { state.presence.replace($0) }
        case .presenceDiff(let told): return state.presence.change(told)
        case .problem(let problem): return .problem(problem)
        case .change, .joined, .rowsBegin, .row, .rowsEnd, .mustRefetch, .answered: return nil
        }
    }

    fileprivate func listen() -> (Int, Mailbox<RoomEvent>) {
        let mailbox = Mailbox<RoomEvent>()
        let number = state.value.withLock { state in
            state.next += 1
            state.listeners[state.next] = mailbox
            return state.next
        }
        return (number, mailbox)
    }

    fileprivate func stopListening(_ number: Int) {
        _ = state.value.withLock { $0.listeners.removeValue(forKey: number) }
    }
}

public struct RoomEvents: AsyncSequence, Sendable {
    let room: TidewireRoom

    public func makeAsyncIterator() -> Iterator { Iterator(room) }

    public final class Iterator: AsyncIteratorProtocol {
        private let room: TidewireRoom
        private let number: Int
        private let mailbox: Mailbox<RoomEvent>

        init(_ room: TidewireRoom) {
            self.room = room
            (number, mailbox) = room.listen()
        }

        deinit { room.stopListening(number) }

        public func next() async -> RoomEvent? { await mailbox.take() }
    }
}

/// Present clients, from the server's messages. After a rejoin, the new state shows who left meanwhile; the book
/// reports them as left.
struct PresenceBook: Sendable {
    private var metas: [String: [String: JSONValue]] = [:]

    var now: Presences { metas.mapValues { $0.sorted { $0.key < $1.key }.map(\.value) } }

    mutating func replace(_ told: [String: JSONValue]) -> RoomEvent? {
        let next = told.mapValues(Self.metas)
        let joined = Self.difference(next, without: metas)
        let left = Self.difference(metas, without: next)
        metas = next
        return event(joined, left)
    }

    mutating func change(_ told: JSONValue) -> RoomEvent? {
        let leaves = (told["leaves"]?.object ?? [:]).mapValues(Self.metas)
        let joins = (told["joins"]?.object ?? [:]).mapValues(Self.metas)
        for (key, gone) in leaves {
            for ref in gone.keys { metas[key]?[ref] = nil }
            if metas[key]?.isEmpty == true { metas[key] = nil }
        }
        for (key, come) in joins { metas[key, default: [:]].merge(come) { _, new in new } }
        return event(joins, leaves)
    }

    private func event(_ joined: [String: [String: JSONValue]], _ left: [String: [String: JSONValue]]) -> RoomEvent? {
        guard !joined.isEmpty || !left.isEmpty else { return nil }
        let values: ([String: JSONValue]) -> [JSONValue] = { $0.sorted { $0.key < $1.key }.map(\.value) }
        return .presence(joined: joined.mapValues(values), left: left.mapValues(values), now: now)
    }

    /// Returns the tracked states by their references. Each call of `track` has its own reference.
    private static func metas(_ told: JSONValue) -> [String: JSONValue] {
        var found: [String: JSONValue] = [:]
        for meta in told["metas"]?.array ?? [] {
            guard var payload = meta.object, let ref = payload.removeValue(forKey: "phx_ref")?.text else { continue }
            payload["phx_ref_prev"] = nil
            found[ref] = .object(payload)
        }
        return found
    }

    private static func difference(
        _ some: [String: [String: JSONValue]], without others: [String: [String: JSONValue]]
    ) -> [String: [String: JSONValue]] {
        var rest: [String: [String: JSONValue]] = [:]
        for (key, metas) in some {
            let own = metas.filter { others[key]?[$0.key] == nil }
            if !own.isEmpty { rest[key] = own }
        }
        return rest
    }
}
