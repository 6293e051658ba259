import Foundation
import Synchronization

extension Tidewire {
    /// Returns a room: a topic on which clients send messages to each other and see which clients are present. The room
    /// is joined by ``TidewireRoom/join()``.
    ///
    /// - Parameters:
    ///   - topic: name of the room. Use only one room object for each topic.
    ///   - isPrivate: true if the server checks the user's rights on the room.
    ///   - presenceKey: key under which this client appears in presence; nil to receive no presence.
    ///   - hearsItself: true if this client also receives the messages that it sends itself.
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

/// A room: a topic on which clients send messages to each other and see which clients are present.
///
/// ```swift
/// let room = tidewire.room("board:7", presenceKey: me.uuidString)
/// let moves = room.messages(event: "move", as: Move.self)
/// try await room.join()
/// try await room.send(Move(piece: "queen", to: "d4"), event: "move")
/// for try await move in moves {
///     board.apply(move)
/// }
/// ```
///
/// After a lost connection the room joins again automatically. The client leaves the room when the app calls
/// ``leave()``, when the user signs out, or when the app releases the room and its sequences.
public final class TidewireRoom: Sendable {
    /// Treatment of a message that is sent while the room is not joined.
    public enum OfflineBehavior: Sendable, Hashable {
        /// Throws ``RoomError/notJoined`` immediately.
        case fail
        /// Sends the message when the room is joined. Throws ``RoomError/expired`` if that takes longer than this time.
        /// At most 100 messages wait.
        case queue(atMost: Duration)
        /// Discards the message without an error. For values that are soon outdated, such as the position of a cursor.
        case drop
    }

    private struct Waiting: Sendable {
        let number: Int
        let body: JSONValue
        let answer: @Sendable (Result<Void, any Error>) -> Void
    }

    private struct Listener: Sendable {
        /// Event name of the messages to receive; nil to receive all events.
        let event: String?
        let mailbox: Mailbox<Event>

        /// True if the listener gets this event.
        func receives(_ told: Event) -> Bool {
            guard let event else { return true }
            return switch told {
            case .message(let name, _, _): name == event
            case .problem(let problem): RoomError.finalCodes.contains(problem.code)
            case .presence, .joined, .missed: false
            }
        }
    }

    /// A call of `join` that waits for the server's answer.
    private struct Joining: Sendable {
        let number: Int
        let answer: @Sendable (Result<Void, any Error>) -> Void
    }

    private struct State {
        var presence = PresenceBook()
        var isJoined = false
        var waiting: [Waiting] = []
        var listeners: [Int: Listener] = [:]
        var next = 0
        /// Number of the room's channel, from `join` to `leave`; nil otherwise.
        var channel: Int?
        var joining: [Joining] = []
        /// True if the channel has ever been joined, even if the connection is lost now.
        var hasJoined = false
        /// Presence payload that the app tracks; nil if it tracks none.
        var tracked: JSONValue?
        /// Problem with which the server closed the channel because of a rate limit. Nil again after the next join.
        var rate: TidewireProblem?
        /// Problem with which the server last reported that it dropped a message; nil if there was none.
        var drop: TidewireProblem?
        /// Number of times that the server reported a dropped message.
        var drops = 0

        /// Problem for which the server ends the channel permanently; nil if it has reported none.
        var ending: TidewireProblem?

        /// Returns the problem for which the server has ended this channel permanently; nil if the channel may
        /// continue.
        mutating func refusal(_ output: ChannelMachine.Output, _ channel: Int) -> TidewireProblem? {
            guard self.channel == channel else { return nil }
            switch output {
            case .problem(let problem) where RoomError.finalCodes.contains(problem.code):
                ending = problem
                return isJoined ? nil : problem
            case .lost: return ending
            default: return nil
            }
        }

        mutating func nextNumber() -> Int {
            next += 1
            return next
        }
    }

    /// Maximum number of messages that wait until the room is joined.
    static let maximumWaiting = 100
    /// Maximum number of events that wait for a slow listener. Further events are dropped; the event `missed` reports
    /// their number.
    static let maximumUnheard = 1000

    private let engine: Engine
    private let request: ChannelRequest
    private let state = Shared()

    /// State that is shared with the engine's callbacks, which may outlive the room briefly.
    private final class Shared: Sendable {
        let value = Mutex(State())
    }

    init(_ engine: Engine, _ request: ChannelRequest) {
        self.engine = engine
        self.request = request
    }

    deinit {
        guard let channel = state.value.withLock({ $0.channel }) else { return }
        engine.leave(channel)
    }

    // MARK: Joining

    /// True if the room is joined now. False before ``join()`` and while the connection is lost.
    public var isJoined: Bool { state.value.withLock { $0.isJoined } }

    /// Joins the room. Returns when the server has admitted the client, or immediately if the room is already joined.
    ///
    /// Without a network `join` waits and tries again. If the token has expired, it waits for another token
    /// (``Tidewire/signIn(token:)``). Cancel the task to stop waiting.
    ///
    /// - Throws: ``RoomError/refused(_:)`` if the user may not join the room, ``RoomError/signedOut`` if no user is
    ///   signed in, or `CancellationError`. After an error the room is not joined, and the client does not try again.
    public func join() async throws {
        let number = state.value.withLock { $0.nextNumber() }
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
                join(Joining(number: number) { continuation.resume(with: $0) })
            }
        } onCancel: {
            cancelJoin(number)
        }
    }

    private func join(_ joining: Joining) {
        guard engine.account != .signedOut else { return joining.answer(.failure(RoomError.signedOut)) }
        let new = engine.nextNumber()
        let (answer, isNew, tracked) = state.value.withLock { state -> (Result<Void, any Error>?, Bool, JSONValue?) in
            if Task.isCancelled { return (.failure(CancellationError()), false, nil) }
            if state.isJoined { return (.success(()), false, nil) }
            state.joining.append(joining)
            guard state.channel == nil else { return (nil, false, nil) }
            state.channel = new
            return (nil, true, state.tracked)
        }
        if let answer { return joining.answer(answer) }
        guard isNew else { return }
        engine.enter(
            new, request,
            Engine.RoomListener(
                topic: request.topic,
                hear: { [weak engine, state] output in
                    if let engine { Self.hear(output, new, state, engine) }
                }, end: { [state] why in Self.end(new, state, why) }))
        if let tracked { engine.handle(.track(channel: new, tracked)) }
        // The join may have been cancelled before the client entered the channel.
        if state.value.withLock({ $0.channel != new }) { engine.leave(new) }
    }

    private func cancelJoin(_ number: Int) {
        let (joining, channel) = state.value.withLock { state -> (Joining?, Int?) in
            guard let index = state.joining.firstIndex(where: { $0.number == number }) else { return (nil, nil) }
            let joining = state.joining.remove(at: index)
            // The room was joined before, or another call of `join` is still waiting.
            let isWanted = state.hasJoined || !state.joining.isEmpty
            defer { if !isWanted { state.channel = nil } }
            return (joining, isWanted ? nil : state.channel)
        }
        if let channel { engine.leave(channel) }
        joining?.answer(.failure(CancellationError()))
    }

    /// Leaves the room: ends its sequences and this client's presence. Messages that wait are not sent, and their calls
    /// of `send` throw.
    public func leave() {
        let channel = state.value.withLock { $0.channel }
        Self.end(channel, state, .left)
        if let channel { engine.leave(channel) }
    }

    // MARK: Sending

    /// Sends a message. Returns when the server has received it.
    ///
    /// - Parameters:
    ///   - payload: content of the message.
    ///   - event: name of the message, by which receivers select messages.
    ///   - whenOffline: treatment of the message while the room is not joined. By default `send` throws.
    /// - Throws: ``RoomError`` if the message was not sent or not confirmed; `CancellationError` if the task is
    ///   cancelled before the message is sent.
    public func send(_ payload: JSONValue, event: String, whenOffline: OfflineBehavior = .fail) async throws {
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

    /// Sends a message whose payload is a value of the app's type. Returns when the server has received it.
    ///
    /// - Parameters:
    ///   - payload: content of the message.
    ///   - event: name of the message, by which receivers select messages.
    ///   - whenOffline: treatment of the message while the room is not joined. By default `send` throws.
    /// - Throws: ``RoomError`` or `CancellationError`, as for JSON; `EncodingError` if JSON cannot express the value.
    @_disfavoredOverload
    public func send(_ payload: some Encodable, event: String, whenOffline: OfflineBehavior = .fail) async throws {
        try await send(try JSONValue(encoding: payload), event: event, whenOffline: whenOffline)
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
                // The room may have been joined since the check.
                Self.sendWaiting(state, engine)
            }
        } onCancel: {
            Self.giveUp(number, state, CancellationError())
        }
    }

    /// Removes a message that waits for the join, and makes its call of `send` throw.
    private static func giveUp(_ number: Int, _ state: Shared, _ why: any Error) {
        let waiting = state.value.withLock { state in
            state.waiting.firstIndex { $0.number == number }.map { state.waiting.remove(at: $0) }
        }
        waiting?.answer(.failure(why))
    }

    /// Sends the messages that waited until the room was joined.
    private static func sendWaiting(_ state: Shared, _ engine: Engine) {
        let (channel, waiting) = state.value.withLock { state -> (Int?, [Waiting]) in
            guard state.isJoined, state.channel != nil else { return (nil, []) }
            defer { state.waiting = [] }
            return (state.channel, state.waiting)
        }
        guard let channel else { return }
        for message in waiting { push(message.body, channel, state, engine, message.answer) }
    }

    /// Number of messages that wait until the room is joined.
    var waitingMessages: Int { state.value.withLock { $0.waiting.count } }

    /// Makes this client present with a payload, now and after every join. Nil ends its presence.
    public func track(_ payload: JSONValue?) {
        let channel = state.value.withLock { state in
            state.tracked = payload
            return state.channel
        }
        if let channel { engine.handle(.track(channel: channel, payload)) }
    }

    /// Makes this client present with a value of the app's type, now and after every join.
    ///
    /// - Throws: `EncodingError` if JSON cannot express the value.
    @_disfavoredOverload
    public func track(_ payload: some Encodable) throws { track(try JSONValue(encoding: payload)) }

    // MARK: Receiving

    /// Clients that are present in the room.
    ///
    /// - Complexity: O(*n* log *n*), where *n* is the number of tracked states.
    public var presences: Presences { state.value.withLock { $0.presence.now } }

    /// The sequence of the room's events, from now on.
    public var events: Events { Events(listening: RoomListening(self, nil)) }

    /// Handles an output of the room's channel.
    private static func hear(_ output: ChannelMachine.Output, _ channel: Int, _ state: Shared, _ engine: Engine) {
        let (listeners, event) = state.value.withLock { state -> ([Listener], Event?) in
            // The app has left the room, or has joined it again on another channel.
            guard state.channel == channel else { return ([], nil) }
            return (Array(state.listeners.values), Self.event(of: output, &state))
        }
        if let event {
            for listener in listeners where listener.receives(event) {
                listener.mailbox.put(event, limit: maximumUnheard) { .missed($0) }
            }
        }
        if let refusal = state.value.withLock({ $0.refusal(output, channel) }) {
            end(channel, state, .refused(refusal))
            engine.leave(channel)
        }
        if case .caughtUp = output {
            let joining = state.value.withLock { state in
                defer { state.joining = [] }
                return state.joining
            }
            for call in joining { call.answer(.success(())) }
            sendWaiting(state, engine)
        }
    }

    /// Ends the room: all waiting calls throw, and its sequences end.
    ///
    /// - Parameter channel: channel that has ended. If the room has another channel by now, nothing happens.
    private static func end(_ channel: Int?, _ state: Shared, _ why: RoomError) {
        let former = state.value.withLock { state -> State? in
            guard state.channel == channel else { return nil }
            var rest = State()
            rest.next = state.next
            swap(&state, &rest)
            return rest
        }
        guard let former else { return }
        for call in former.joining { call.answer(.failure(why)) }
        for message in former.waiting { message.answer(.failure(why)) }
        for listener in former.listeners.values { listener.mailbox.finish(discarding: why == .signedOut) }
    }

    private static func event(of output: ChannelMachine.Output, _ state: inout State) -> Event? {
        switch output {
        case .broadcast(let event, let payload, let bytes):
            return .message(event: event, payload: payload, bytes: bytes)
        case .caughtUp:
            (state.isJoined, state.hasJoined) = (true, true)
            (state.rate, state.ending) = (nil, nil)
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

    func listen(to event: String?) -> (Int, Mailbox<Event>) {
        let mailbox = Mailbox<Event>()
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
