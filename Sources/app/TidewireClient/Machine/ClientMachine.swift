/// State machine of the whole client: one connection and its channels. It gets events with their times and returns
/// actions, so tests use it without any connection.
struct ClientMachine: Sendable {
    /// Account that the client uses: none, the project's key, or a signed-in user.
    enum Account: Sendable, Hashable {
        case signedOut
        case anonymous
        case signedIn(token: String)

        var token: String? { if case .signedIn(let token) = self { token } else { nil } }
    }

    enum Event: Sendable {
        case account(Account)
        case subscribe(Int, ChannelRequest)
        case unsubscribe(Int)
        case rewind(Int, LogPosition)
        case push(channel: Int, number: Int, event: String, payload: JSONValue)
        case track(channel: Int, JSONValue?)
        case opened
        case interrupted(Tidewire.Interruption)
        case received(ServerMessage)
        case network(isReachable: Bool)
        case background
        case foreground
        case woke
    }

    enum Action: Sendable, Hashable {
        case open
        case close
        case send(ClientMessage)
        case tell(Int, ChannelMachine.Output)
    }

    private(set) var account: Account
    private var connection = ConnectionMachine()
    private var channels: [Int: ChannelMachine] = [:]
    private var topics: [String: Int] = [:]
    private var lastRef = 0
    private var chance: Chance

    init(account: Account, seed: UInt64) {
        self.account = account
        chance = Chance(seed: seed)
    }

    /// Handles an event and returns the actions to perform.
    mutating func handle(_ event: Event, at now: Duration) -> [Action] {
        switch event {
        case .account(let account): return change(account, at: now)
        case .subscribe(let number, let request): return subscribe(number, request, at: now)
        case .unsubscribe(let number): return unsubscribe(number, at: now)
        case .rewind(let number, let position):
            return onChannel(number, at: now) { $0.rewind(to: position, &$1) }
        case .push(let number, let pushed, let event, let payload):
            guard channels[number] != nil else {
                return [.tell(number, .answered(push: pushed, ChannelMachine.notJoined))]
            }
            return onChannel(number, at: now) { $0.push(number: pushed, event: event, payload: payload, &$1) }
        case .track(let number, let payload):
            return onChannel(number, at: now) { $0.track(payload, &$1) }
        case .opened:
            connection.opened(at: now)
            return onAllChannels(at: now) { $0.socketOpened(&$1) }
        case .interrupted(let why):
            return perform(connection.interrupted(why, at: now, chance: &chance), at: now)
        case .received(let message): return received(message, at: now)
        case .network(let isReachable):
            return perform(connection.networkChanged(isReachable: isReachable, at: now), at: now)
        case .background:
            connection.wentToBackground(at: now)
            return []
        case .foreground: return perform(connection.cameToForeground(at: now), at: now)
        case .woke:
            let actions = perform(connection.woke(at: now, chance: &chance), at: now)
            return actions + onAllChannels(at: now) { $0.woke(&$1) }
        }
    }

    /// Time at which the machine must act next; nil if it only waits for events.
    var nextWake: Duration? {
        let channels = connection.isOpen ? channels.values.compactMap(\.nextWake) : []
        return (channels + [connection.nextWake].compactMap { $0 }).min()
    }

    /// True if the channel with this number can ask the server for earlier changes again.
    func canRewind(_ number: Int) -> Bool { channels[number]?.canRewind ?? false }
    /// Returns the position of the channel with this number, if the channel has caught up; nil otherwise.
    func standing(_ number: Int) -> LogPosition? {
        guard case .live = channels[number]?.phase else { return nil }
        return channels[number]?.position
    }
    func hasJoined(_ number: Int) -> Bool { channels[number]?.hasJoinedBefore ?? false }

    // MARK: Account and subscriptions

    private mutating func change(_ account: Account, at now: Duration) -> [Action] {
        guard account != self.account else { return [] }
        let isSamePerson = self.account.token != nil && account.token != nil
        self.account = account
        guard account != .signedOut else {
            // The next user must not receive anything that the earlier user asked for.
            let actions = onAllChannels(at: now) { $0.left(&$1) }
            channels = [:]
            topics = [:]
            return actions + perform(connection.wanted(false, at: now), at: now)
        }
        var actions = isSamePerson ? onAllChannels(at: now) { $0.tokenChanged(&$1) } : []
        actions += perform(connection.credentialsChanged(at: now), at: now)
        return actions + connect(at: now)
    }

    private mutating func connect(at now: Duration) -> [Action] {
        perform(connection.wanted(account != .signedOut && !channels.isEmpty, at: now), at: now)
    }

    private mutating func subscribe(_ number: Int, _ request: ChannelRequest, at now: Duration) -> [Action] {
        channels[number] = ChannelMachine(request)
        topics["realtime:" + request.topic] = number
        let actions = connect(at: now)
        return actions + (connection.isOpen ? onChannel(number, at: now) { $0.socketOpened(&$1) } : [])
    }

    private mutating func unsubscribe(_ number: Int, at now: Duration) -> [Action] {
        guard let topic = channels[number].map({ "realtime:" + $0.request.topic }) else { return connect(at: now) }
        // A newer channel with the same topic has replaced this one, also on the server. A leave message would end the
        // newer one.
        let isReplaced = topics[topic] != number
        let actions = isReplaced ? [] : onChannel(number, at: now) { $0.left(&$1) }
        channels[number] = nil
        if !isReplaced { topics[topic] = nil }
        return actions + connect(at: now)
    }

    // MARK: Messages of the server

    private mutating func received(_ message: ServerMessage, at now: Duration) -> [Action] {
        connection.received()
        if message.topic == "phoenix" {
            connection.heartbeatAnswered(ref: message.ref, at: now)
            return []
        }
        guard let number = topics[message.topic] else { return [] }
        return onChannel(number, at: now) { $0.received(message, &$1) }
    }

    // MARK: Steps

    private mutating func perform(_ steps: [ConnectionMachine.Action], at now: Duration) -> [Action] {
        var actions: [Action] = []
        for step in steps {
            switch step {
            case .open: actions.append(.open)
            case .close: actions.append(.close)
            case .lost: actions += onAllChannels(at: now) { channel, _ in channel.socketLost() }
            case .sendHeartbeat:
                lastRef += 1
                connection.heartbeatSent(ref: String(lastRef), at: now)
                actions.append(.send(ClientMessage(ref: String(lastRef), topic: "phoenix", event: "heartbeat")))
            }
        }
        return actions
    }

    private mutating func onChannel(
        _ number: Int, at now: Duration, _ step: (inout ChannelMachine, inout Turn) -> [ChannelMachine.Action]
    ) -> [Action] {
        guard var channel = channels[number] else { return [] }
        var turn = Turn(
            now: now, token: account.token, isOpen: connection.isOpen, lastRef: lastRef, chance: chance)
        let actions = step(&channel, &turn)
        channels[number] = channel
        (lastRef, chance) = (turn.lastRef, turn.chance)
        return actions.map { action in
            switch action {
            case .send(let message): .send(message)
            case .tell(let output): .tell(number, output)
            }
        }
    }

    private mutating func onAllChannels(
        at now: Duration, _ step: (inout ChannelMachine, inout Turn) -> [ChannelMachine.Action]
    ) -> [Action] {
        channels.keys.sorted().flatMap { onChannel($0, at: now, step) }
    }
}

extension ClientMachine {
    /// State of the client as the app sees it.
    var state: Tidewire.State {
        guard account != .signedOut else { return .signedOut }
        switch connection.phase {
        case .idle: return .offline(.nothingSubscribed)
        case .waiting(let attempt, let until, let why): return .connecting(attempt: attempt, next: until, after: why)
        case .opening(let attempt, _): return .connecting(attempt: attempt, next: nil, after: nil)
        case .refused(let why): return .offline(.refused(why))
        case .withoutNetwork: return .offline(.noNetwork)
        case .suspended: return .offline(.inBackground)
        case .open: return stateOfChannels
        }
    }

    private var stateOfChannels: Tidewire.State {
        var behind = 0
        for number in channels.keys.sorted() {
            switch channels[number]?.phase {
            case .awaitingToken(let problem): return .offline(.tokenRefused(problem))
            case .absent, .joining, .catchingUp, .waiting: behind += 1
            case .live, .refused, nil: break
            }
        }
        return behind > 0 ? .catchingUp(behind) : .live
    }
}
