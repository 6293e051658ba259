import Foundation
import Synchronization

/// What one who asked for changes is given, in order.
enum LiveItem: Sendable, Hashable {
    case batch([RowChange], Position?)
    case caughtUp(Position?)
    /// Nil for the first time.
    case refetch(RefetchReason?, Position?)
    case problem(Problem)
}

/// Performs what the machine decides: one connection, its channels, who listens to them. Whatever happens waits in one line and
/// is handled one after the other, by whoever came first; nothing is done under a lock.
final class Engine: Sendable {
    struct Listener: Sendable {
        let channel: Int
        let mailbox: Mailbox<LiveItem>
        var batcher: Batcher
        /// Everything before it has been put into the mailbox or dropped as told before.
        var position: Position?
        /// More came than fits into its mailbox; it begins behind `lastPut`.
        var isOverrun = false
        var waitingChanges = 0
        var isFirst = true
        let asksFirst: Bool
        /// More changes do not wait for somebody: they are asked for again when it comes to take them.
        let maximumWaitingChanges: Int
        /// The end of the last batch in the mailbox.
        var lastPut: Position?
    }

    struct Room: Sendable {
        let hear: @Sendable (ChannelMachine.Output) -> Void
    }

    private struct Core {
        var machine: ClientMachine
        var line: [ClientMachine.Event] = []
        var isWorking = false
        var connection: (any TransportConnection)?
        var connectionNumber = 0
        var wakeAt: Duration?
        var next = 1
        var listeners: [Int: Listener] = [:]
        var rooms: [Int: Room] = [:]
        /// Channels of queries that are shared, by what they ask for.
        var shared: [[Binding]: Int] = [:]
        var bindings: [Int: [Binding]] = [:]
        var state: ClientState
        var watchers: [Int: Mailbox<ClientState>] = [:]
        var pushes: [Int: CheckedContinuation<Problem?, Never>] = [:]
    }

    let address: TransportRequest
    let transport: any Transport
    let clock: any ClientClock
    let storage: any TidewireStorage
    private let maximumWaitingChanges: Int
    private let core: Mutex<Core>

    init(
        _ address: TransportRequest, account: ClientMachine.Account, transport: any Transport, clock: any ClientClock,
        storage: any TidewireStorage, maximumWaitingChanges: Int, seed: UInt64
    ) {
        self.address = address
        self.transport = transport
        self.clock = clock
        self.storage = storage
        self.maximumWaitingChanges = maximumWaitingChanges
        let machine = ClientMachine(account: account, seed: seed)
        core = Mutex(Core(machine: machine, state: machine.state))
    }

    deinit { core.withLock { $0.connection }?.close() }

    // MARK: The line

    func handle(_ event: ClientMachine.Event) {
        let isFirst = core.withLock { core in
            core.line.append(event)
            defer { core.isWorking = true }
            return !core.isWorking
        }
        if isFirst { work() }
    }

    private func work() {
        while true {
            let actions: [ClientMachine.Action]? = core.withLock { core in
                guard !core.line.isEmpty else { return nil }
                return core.machine.handle(core.line.removeFirst(), at: clock.now)
            }
            if let actions {
                for action in actions { perform(action) }
                handOver()
                continue
            }
            announce()
            let isDone = core.withLock { core in
                guard core.line.isEmpty else { return false }
                core.isWorking = false
                return true
            }
            if isDone { return schedule() }
        }
    }

    private func perform(_ action: ClientMachine.Action) {
        switch action {
        case .open: open()
        case .close: close()
        case .send(let message): core.withLock { $0.connection }?.send(message.text)
        case .tell(let channel, let output): tell(channel, output)
        }
    }

    private func open() {
        let number = core.withLock { core in
            core.connectionNumber += 1
            return core.connectionNumber
        }
        let connection = transport.connect(to: address) { [weak self] event in self?.heard(event, number) }
        core.withLock { core in
            if core.connectionNumber == number { core.connection = connection }
        }
    }

    private func close() {
        let connection = core.withLock { core in
            core.connectionNumber += 1
            defer { core.connection = nil }
            return core.connection
        }
        connection?.close()
    }

    /// Of connections that were given up nothing is heard.
    private func heard(_ event: TransportEvent, _ number: Int) {
        guard core.withLock({ $0.connectionNumber == number }) else { return }
        switch event {
        case .opened: handle(.opened)
        case .text(let text): heard(Result { try ServerMessage(parsing: text) })
        case .bytes(let bytes): heard(Result { try ServerMessage(parsing: bytes) })
        case .ended(let why): handle(.interrupted(why))
        }
    }

    /// One that cannot be read is left out: a change among them is missed by its position.
    private func heard(_ message: Result<ServerMessage, any Error>) {
        if case .success(let message) = message { handle(.received(message)) }
    }

    private func schedule() {
        let due: Duration? = core.withLock { core in
            let batches = core.listeners.values.compactMap(\.batcher.nextWake).min()
            guard let due = [core.machine.nextWake, batches].compactMap({ $0 }).min() else { return nil }
            if let wakeAt = core.wakeAt, wakeAt <= due { return nil }
            core.wakeAt = due
            return due
        }
        guard let due else { return }
        clock.wake(at: due) { [weak self] in
            guard let self else { return }
            core.withLock { core in
                if core.wakeAt == due { core.wakeAt = nil }
            }
            handle(.woke)
        }
    }

    // MARK: The state

    var state: ClientState { core.withLock { $0.state } }
    var account: ClientMachine.Account { core.withLock { $0.machine.account } }

    private func announce() {
        let (state, watchers) = core.withLock { core -> (ClientState?, [Mailbox<ClientState>]) in
            guard core.machine.state != core.state else { return (nil, []) }
            core.state = core.machine.state
            return (core.state, Array(core.watchers.values))
        }
        guard let state else { return }
        for watcher in watchers {
            // Who is slow sees the latest.
            watcher.empty()
            watcher.put(state)
        }
    }

    func watch() -> (Int, Mailbox<ClientState>) {
        let mailbox = Mailbox<ClientState>()
        let number = core.withLock { core in
            core.next += 1
            core.watchers[core.next] = mailbox
            mailbox.put(core.state)
            return core.next
        }
        return (number, mailbox)
    }

    func unwatch(_ number: Int) { _ = core.withLock { $0.watchers.removeValue(forKey: number) } }

    // MARK: Who listens

    struct Query: Sendable {
        var bindings: [Binding]
        var position: Position?
        var batcher: Batcher
        /// Whether what there is already is fetched first.
        var asksFirst: Bool
    }

    func listen(_ query: Query) -> (Int, Mailbox<LiveItem>) {
        let mailbox = Mailbox<LiveItem>()
        let (number, request, channel) = core.withLock { core -> (Int, ChannelRequest?, Int) in
            core.next += 1
            let number = core.next
            let isShared = query.position == nil && core.shared[query.bindings] != nil
            let channel = isShared ? core.shared[query.bindings] ?? number : number
            var listener = Listener(
                channel: channel, mailbox: mailbox, batcher: query.batcher, position: query.position,
                asksFirst: query.asksFirst && query.position == nil, maximumWaitingChanges: maximumWaitingChanges)
            // What is fetched before the server has begun to tell changes would leave a gap.
            if isShared, listener.asksFirst, core.machine.hasJoined(channel) {
                listener.isFirst = false
                mailbox.put(.refetch(nil, nil))
            }
            core.listeners[number] = listener
            guard !isShared else { return (number, nil, channel) }
            let isTaken = core.shared[query.bindings] != nil
            core.bindings[channel] = query.bindings
            if !isTaken { core.shared[query.bindings] = channel }
            let topic = Self.topic(query.bindings) + (isTaken ? "#\(number)" : "")
            return (number, ChannelRequest(topic: topic, bindings: query.bindings, position: query.position), channel)
        }
        if let request { handle(.subscribe(channel, request)) }
        return (number, mailbox)
    }

    /// The same in every launch, so that the server knows it again.
    private static func topic(_ bindings: [Binding]) -> String { "tidewire:" + fingerprint(bindings) }

    static func fingerprint(_ bindings: [Binding]) -> String {
        let text = JSONValue.array(bindings.map(\.json)).json
        let hash = text.utf8.reduce(0xcbf2_9ce4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
        return String(hash, radix: 16)
    }

    func stopListening(_ number: Int) {
        let channel: Int? = core.withLock { core in
            guard let listener = core.listeners.removeValue(forKey: number) else { return nil }
            listener.mailbox.finish(discarding: true)
            guard !core.listeners.values.contains(where: { $0.channel == listener.channel }) else { return nil }
            if let bindings = core.bindings.removeValue(forKey: listener.channel),
                core.shared[bindings] == listener.channel
            {
                core.shared[bindings] = nil
            }
            return listener.channel
        }
        if let channel { handle(.unsubscribe(channel)) }
    }

    /// Its changes are asked for again where they did not fit any more.
    func took(_ number: Int, _ changes: Int, to position: Position?) {
        let rewind: (Int, Position)? = core.withLock { core in
            guard var listener = core.listeners[number] else { return nil }
            listener.waitingChanges -= changes
            defer { core.listeners[number] = listener }
            guard listener.isOverrun, listener.mailbox.count == 0 else { return nil }
            listener.isOverrun = false
            guard let lastPut = listener.lastPut, core.machine.canRewind(listener.channel) else {
                listener.mailbox.put(.refetch(.tooSlow, nil))
                return nil
            }
            listener.position = lastPut
            return (listener.channel, lastPut)
        }
        if let rewind { handle(.rewind(rewind.0, rewind.1)) }
    }

    // MARK: What they are told

    private func tell(_ channel: Int, _ output: ChannelMachine.Output) {
        if case .answered(let push, let problem) = output {
            let continuation = core.withLock { $0.pushes.removeValue(forKey: push) }
            continuation?.resume(returning: problem)
            return
        }
        let room = core.withLock { core -> Room? in
            for number in core.listeners.keys.sorted() where core.listeners[number]?.channel == channel {
                core.listeners[number]?.hear(output, at: clock.now)
            }
            return core.rooms[channel]
        }
        room?.hear(output)
    }

    private func handOver() {
        core.withLock { core in
            for number in core.listeners.keys.sorted() {
                while let batch = core.listeners[number]?.batcher.due(at: clock.now) {
                    core.listeners[number]?.put(batch)
                }
            }
        }
    }

    /// Whatever waits for a window: before the app is suspended.
    func flush() {
        core.withLock { core in
            for number in core.listeners.keys.sorted() {
                if let batch = core.listeners[number]?.batcher.flush() { core.listeners[number]?.put(batch) }
            }
        }
    }

    // MARK: Rooms

    func enter(_ request: ChannelRequest, hear: @escaping @Sendable (ChannelMachine.Output) -> Void) -> Int {
        let number = core.withLock { core in
            core.next += 1
            core.rooms[core.next] = Room(hear: hear)
            return core.next
        }
        handle(.subscribe(number, request))
        return number
    }

    func leave(_ number: Int) {
        _ = core.withLock { $0.rooms.removeValue(forKey: number) }
        handle(.unsubscribe(number))
    }

    /// Nil when the server has it.
    func push(_ channel: Int, event: String, payload: JSONValue) async -> Problem? {
        await withCheckedContinuation { continuation in
            let number = core.withLock { core in
                core.next += 1
                core.pushes[core.next] = continuation
                return core.next
            }
            handle(.push(channel: channel, number: number, event: event, payload: payload))
        }
    }

    // MARK: Who

    /// Nobody who listens now is told anything any more.
    func signOut() {
        let rooms = core.withLock { core in
            for listener in core.listeners.values { listener.mailbox.finish(discarding: true) }
            (core.listeners, core.shared, core.bindings) = ([:], [:], [:])
            defer { core.rooms = [:] }
            return core.rooms.values.map { $0 }
        }
        for room in rooms { room.hear(.lost) }
        handle(.account(.signedOut))
        storage.removeAll()
    }
}

extension Engine.Listener {
    mutating func hear(_ output: ChannelMachine.Output, at now: Duration) {
        switch output {
        case .change(let change):
            if let behind = change.position {
                if let position, position.covers(behind) { return }
                position = behind
            }
            if !isOverrun { batcher.add(change, at: now) }
        case .joined(let recovered, let at):
            if !recovered { position = at }
            if isFirst, asksFirst, !recovered { mailbox.put(.refetch(nil, position)) }
            isFirst = false
        case .mustRefetch(let reason):
            if let batch = batcher.flush() { put(batch) }
            mailbox.put(.refetch(reason, position))
        case .caughtUp(let at):
            if let batch = batcher.flush() { put(batch) }
            if let at { position = at }
            if !isOverrun { mailbox.put(.caughtUp(at)) }
        case .problem(let problem):
            if !isOverrun { mailbox.put(.problem(problem)) }
        case .broadcast, .presenceState, .presenceDiff, .lost, .answered: break
        }
    }

    /// Where nobody takes them they are dropped, and asked for again from where whoever does not take them stands.
    mutating func put(_ batch: [RowChange]) {
        guard !isOverrun else { return }
        waitingChanges += batch.count
        if waitingChanges > maximumWaitingChanges, mailbox.count > 0 {
            isOverrun = true
            waitingChanges -= batch.count
            batcher.discard()
            return
        }
        lastPut = batch.last?.position ?? lastPut
        mailbox.put(.batch(batch, batch.last?.position))
    }
}
