import Foundation
import Synchronization

/// Treatment of a message while the room is not joined.
public enum WhenOffline: Sendable, Hashable {
    /// Throws ``RoomError/notJoined`` at once.
    case fail
    /// Waits for the join, at most for this time, and throws ``RoomError/expired`` after it. At most 100 messages wait.
    case queue(atMost: Duration)
    /// Discards the message without an error. For values that are soon outdated, such as the place of a cursor.
    case drop
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
        let number: Int
        let body: JSONValue
        let answer: @Sendable (Result<Void, any Error>) -> Void
    }

    private struct Listener: Sendable {
        /// Event of the messages to receive; nil to receive all events.
        let event: String?
        let mailbox: Mailbox<RoomEvent>

        func receives(_ told: RoomEvent) -> Bool {
            guard let event else { return true }
            return switch told {
            case .message(let name, _, _): name == event
            case .problem(let problem): RoomError.finalCodes.contains(problem.code)
            case .presence, .joined, .missed: false
            }
        }
    }

    private struct State {
        var presence = PresenceBook()
        var isJoined = false
        var waiting: [Waiting] = []
        var listeners: [Int: Listener] = [:]
        var next = 0
        var channel: Int?
        /// Rate limit for which the server closed the channel; nil after the next join.
        var rate: TidewireProblem?
        /// Latest notice that the server dropped a message, and the number of such notices.
        var drop: TidewireProblem?
        var drops = 0

        mutating func nextNumber() -> Int {
            next += 1
            return next
        }
    }

    static let maximumWaiting = 100
    /// Maximum number of events that wait for a slow listener. The listener is told how many further ones it missed.
    static let maximumUnheard = 1000

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
        let channel = engine.nextNumber()
        state.value.withLock { $0.channel = channel }
        engine.enter(
            channel, request,
            Engine.RoomListener(
                hear: { [weak engine] output in
                    if let engine { Self.hear(output, state, engine) }
                }, end: { Self.end(state, $0) }))
    }

    deinit {
        guard let channel = state.value.withLock({ $0.channel }) else { return }
        engine.leave(channel)
    }

    // MARK: Sending

    /// Sends a message. Returns when the server has it.
    ///
    /// - Parameter whenOffline: treatment of the message while the room is not joined. By default `send` throws.
    /// - Throws: ``RoomError`` if the message was not sent or not confirmed; `CancellationError` if the task is
    ///   cancelled while the message waits for the join.
    public func send(_ event: String, _ payload: JSONValue, whenOffline: WhenOffline = .fail) async throws {
        try Task.checkCancellation()
        let body: JSONValue = ["type": "broadcast", "event": .string(event), "payload": payload]
        if let channel = state.value.withLock({ $0.isJoined ? $0.channel : nil }) {
            return try await withCheckedThrowingContinuation { continuation in
                Self.push(body, channel, state, engine) { continuation.resume(with: $0) }
            }
        }
        switch whenOffline {
        case .drop: return
        case .fail: throw RoomError.notJoined
        case .queue(let patience): try await sendAfterJoin(body, patience)
        }
    }

    /// Sends a message with a value of the app's type as its payload. Returns when the server has it.
    ///
    /// - Throws: as for JSON, and `EncodingError` if the value cannot be JSON.
    @_disfavoredOverload
    public func send(_ event: String, _ payload: some Encodable, whenOffline: WhenOffline = .fail) async throws {
        try await send(event, try JSONValue(encoding: payload), whenOffline: whenOffline)
    }

    private static func push(
        _ body: JSONValue, _ channel: Int, _ state: Shared, _ engine: Engine,
        _ answer: @escaping @Sendable (Result<Void, any Error>) -> Void
    ) {
        let drops = state.value.withLock { $0.drops }
        engine.push(channel, event: "broadcast", payload: body) { problem in
            guard let problem else { return answer(.success(())) }
            let (rate, drop) = state.value.withLock { ($0.rate, $0.drops > drops ? $0.drop : nil) }
            answer(.failure(RoomError(problem, rate: rate, drop: drop)))
        }
    }

    private func sendAfterJoin(_ body: JSONValue, _ patience: Duration) async throws {
        let number = state.value.withLock { $0.nextNumber() }
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
                let refusal = state.value.withLock { state -> (any Error)? in
                    if Task.isCancelled { return CancellationError() }
                    guard state.waiting.count < Self.maximumWaiting else { return RoomError.tooManyWaiting }
                    state.waiting.append(Waiting(number: number, body: body) { continuation.resume(with: $0) })
                    return nil
                }
                if let refusal { return continuation.resume(throwing: refusal) }
                engine.clock.wake(at: engine.clock.now + patience) { [state] in
                    Self.giveUp(number, state, RoomError.expired)
                }
                // The room may have been joined meanwhile.
                Self.sendWaiting(state, engine)
            }
        } onCancel: {
            Self.giveUp(number, state, CancellationError())
        }
    }

    private static func giveUp(_ number: Int, _ state: Shared, _ why: any Error) {
        let waiting = state.value.withLock { state in
            state.waiting.firstIndex { $0.number == number }.map { state.waiting.remove(at: $0) }
        }
        waiting?.answer(.failure(why))
    }

    private static func sendWaiting(_ state: Shared, _ engine: Engine) {
        let (channel, waiting) = state.value.withLock { state -> (Int?, [Waiting]) in
            guard state.isJoined, state.channel != nil else { return (nil, []) }
            defer { state.waiting = [] }
            return (state.channel, state.waiting)
        }
        guard let channel else { return }
        for message in waiting { push(message.body, channel, state, engine, message.answer) }
    }

    /// Number of messages that wait for the join.
    var waitingMessages: Int { state.value.withLock { $0.waiting.count } }

    /// Makes this client present with a payload, again after every rejoin. Nil ends its presence.
    public func track(_ payload: JSONValue?) {
        guard let channel = state.value.withLock({ $0.channel }) else { return }
        engine.handle(.track(channel: channel, payload))
    }

    // MARK: Receiving

    /// Clients that are present.
    public var presences: Presences { state.value.withLock { $0.presence.now } }

    /// Events from now on.
    public var events: RoomEvents { RoomEvents(listening: RoomListening(self, nil)) }

    private static func hear(_ output: ChannelMachine.Output, _ state: Shared, _ engine: Engine) {
        let (listeners, event) = state.value.withLock { state -> ([Listener], RoomEvent?) in
            (Array(state.listeners.values), Self.event(of: output, &state))
        }
        if let event {
            for listener in listeners where listener.receives(event) {
                listener.mailbox.put(event, limit: maximumUnheard) { .missed($0) }
            }
        }
        if case .caughtUp = output { sendWaiting(state, engine) }
    }

    /// Ends the room: no message waits any more, and nothing more is received.
    private static func end(_ state: Shared, _ why: RoomError) {
        let (waiting, listeners) = state.value.withLock { state in
            defer { (state.waiting, state.listeners, state.isJoined, state.channel) = ([], [:], false, nil) }
            return (state.waiting, state.listeners.values.map { $0 })
        }
        for message in waiting { message.answer(.failure(why)) }
        for listener in listeners { listener.mailbox.finish(discarding: true) }
    }

    private static func event(of output: ChannelMachine.Output, _ state: inout State) -> RoomEvent? {
        switch output {
        case .broadcast(let event, let payload, let bytes):
            return .message(event: event, payload: payload, bytes: bytes)
        case .caughtUp:
            state.isJoined = true
            state.rate = nil
            return .joined
        case .lost:
            state.isJoined = false
            return nil
        case .presenceState(let told): return told.object.flatMap { state.presence.replace($0) }
        case .presenceDiff(let told): return state.presence.change(told)
        case .problem(let problem):
            if RoomError.rateCodes.contains(problem.code) { state.rate = problem }
            if problem.code == "MessageDropped" { (state.drop, state.drops) = (problem, state.drops + 1) }
            return .problem(problem)
        case .change, .joined, .rowsBegin, .row, .rowsEnd, .mustRefetch, .answered: return nil
        }
    }

    func listen(to event: String?) -> (Int, Mailbox<RoomEvent>) {
        let mailbox = Mailbox<RoomEvent>()
        let number = state.value.withLock { state in
            let number = state.nextNumber()
            state.listeners[number] = Listener(event: event, mailbox: mailbox)
            return number
        }
        return (number, mailbox)
    }

    func stopListening(_ number: Int) {
        _ = state.value.withLock { $0.listeners.removeValue(forKey: number) }
    }
}
