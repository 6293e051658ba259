import Foundation
import Synchronization

/// Item in the mailbox of a query: rows, changes, or news about the subscription, in the order in which the query gets
/// them.
enum LiveItem: Sendable, Hashable {
    case batch([RowChange], LogPosition?)
    case caughtUp(LogPosition?)
    /// All existing rows, which replace everything delivered before. The reason is nil for the first rows.
    case rows([RowChange], RefetchReason?, LogPosition)
    /// Request to the app to fetch the existing rows. The reason is nil for the first fetch.
    case refetch(RefetchReason?, LogPosition?)
    case problem(TidewireProblem)
}

/// Core of the client: passes events to `ClientMachine`, performs the actions that it returns, and delivers the results
/// to queries and rooms. It owns the connection. Events wait in one queue. The thread that finds the queue idle handles
/// all queued events, one after the other. The engine performs no action while it holds a lock.
final class Engine: Sendable {
    /// One query, which follows the changes of a channel.
    struct Listener: Sendable {
        var channel: Int
        let mailbox: Mailbox<LiveItem>
        var batcher: Batcher
        /// Position up to which the query has all changes: they are in its mailbox, or it had them before.
        var position: LogPosition?
        /// True if the mailbox was full, so that changes were dropped. The engine asks the server for the changes after
        /// `lastPut` again.
        var isOverrun = false
        /// Number of changes in the mailbox.
        var waitingChanges = 0
        /// True until the channel's first join.
        var isFirst = true
        /// True if the app has to fetch the existing rows after the channel's first join.
        let asksFirst: Bool
        /// Rows of the snapshot that is being received.
        var rows: [RowChange] = []
        /// Maximum number of changes in the mailbox. The client drops further changes and asks for them again later.
        let maximumWaitingChanges: Int
        /// Position of the last change that was put into the mailbox.
        var lastPut: LogPosition?
    }

    /// One room, which receives the outputs of its channel.
    struct RoomListener: Sendable {
        let topic: String
        let hear: @Sendable (ChannelMachine.Output) -> Void
        /// Called once, when the room has ended for another reason than its own `leave`. The room receives nothing
        /// after this call.
        let end: @Sendable (RoomError) -> Void
    }

    private struct Push: Sendable {
        let channel: Int
        let answer: @Sendable (TidewireProblem?) -> Void
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
        var rooms: [Int: RoomListener] = [:]
        /// Number of the channel that all queries with the same subject share, by subject.
        var shared: [Subject: Int] = [:]
        /// Subject of each channel that serves queries, by the channel's number.
        var subjects: [Int: Subject] = [:]
        /// Numbers of the separate channels of queries that began after the shared channel of their subject had joined.
        /// Each ends when it has caught up with the shared one.
        var aside: Set<Int> = []
        var state: Tidewire.State
        var watchers: [Int: Mailbox<Tidewire.State>] = [:]
        /// Messages whose answer the client awaits, by their number.
        var pushes: [Int: Push] = [:]

        /// Removes a channel that has no listeners left, and returns its number. Nil if the channel still has
        /// listeners.
        mutating func forget(_ channel: Int) -> Int? {
            guard !listeners.values.contains(where: { $0.channel == channel }) else { return nil }
            if let subject = subjects.removeValue(forKey: channel), shared[subject] == channel {
                shared[subject] = nil
            }
            aside.remove(channel)
            return channel
        }
    }

    let address: TransportRequest
    let transport: any Transport
    let clock: any ClientClock
    let storage: any TidewireStorage
    private let maximumWaitingChanges: Int
    private let core: Mutex<Core>
    /// Column list of the last message, which the parser reuses (`PreviousColumns`).
    private let said = Mutex(PreviousColumns())

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

    // MARK: Event queue

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
                joinShared()
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

    /// Handles an event of the connection with this number. Ignores the event if the client uses another connection by
    /// now.
    private func heard(_ event: TransportEvent, _ number: Int) {
        guard core.withLock({ $0.connectionNumber == number }) else { return }
        switch event {
        case .opened: handle(.opened)
        case .text(let text): heard(read(text))
        case .bytes(let bytes): heard(Result { try ServerMessage(parsing: bytes) })
        case .ended(let why): handle(.interrupted(why))
        }
    }

    private func read(_ text: String) -> Result<ServerMessage, any Error> {
        said.withLock { said in Result { try ServerMessage(parsing: text, &said) } }
    }

    /// Handles a message of the server. Skips a message that cannot be parsed: if it was a change, the position of the
    /// next change shows that one is missing.
    private func heard(_ message: Result<ServerMessage, any Error>) {
        if case .success(let message) = message { handle(.received(message)) }
    }

    /// Makes the clock wake the engine when the next action or batch is due.
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

    // MARK: State

    var state: Tidewire.State { core.withLock { $0.state } }
    var account: ClientMachine.Account { core.withLock { $0.machine.account } }

    /// Sends the client's state to the watchers if it has changed.
    private func announce() {
        let (state, watchers) = core.withLock { core -> (Tidewire.State?, [Mailbox<Tidewire.State>]) in
            guard core.machine.state != core.state else { return (nil, []) }
            core.state = core.machine.state
            return (core.state, Array(core.watchers.values))
        }
        guard let state else { return }
        for watcher in watchers {
            // A slow watcher gets only the newest state.
            watcher.empty()
            watcher.put(state)
        }
    }

    /// Registers a watcher of the client's state. Returns its number, and the mailbox that gets the states.
    func watch() -> (Int, Mailbox<Tidewire.State>) {
        let mailbox = Mailbox<Tidewire.State>()
        let number = core.withLock { core in
            core.next += 1
            core.watchers[core.next] = mailbox
            mailbox.put(core.state)
            return core.next
        }
        return (number, mailbox)
    }

    func unwatch(_ number: Int) { _ = core.withLock { $0.watchers.removeValue(forKey: number) } }

    // MARK: Listeners

    /// Rows that a query follows. Queries with the same subject share one channel.
    struct Subject: Sendable, Hashable {
        var bindings: [TableBinding]
        /// True if the client asks the server for the existing rows.
        var wantsRows: Bool
    }

    struct Query: Sendable {
        var subject: Subject
        var position: LogPosition?
        var batcher: Batcher
        /// True if the subscriber is told to fetch the existing rows first.
        var asksFirst: Bool
    }

    func listen(_ query: Query) -> (Int, Mailbox<LiveItem>) {
        let mailbox = Mailbox<LiveItem>()
        let (number, request, channel) = core.withLock { core -> (Int, ChannelRequest?, Int) in
            core.next += 1
            let number = core.next
            let shared = core.shared[query.subject]
            // The server sends the existing rows once per join. A later query therefore gets a separate channel, and
            // moves to the shared channel when it has caught up with it.
            let isLate = shared.map { query.subject.wantsRows && core.machine.hasJoined($0) } ?? false
            let isShared = query.position == nil && shared != nil && !isLate
            let channel = isShared ? shared ?? number : number
            var listener = Listener(
                channel: channel, mailbox: mailbox, batcher: query.batcher, position: query.position,
                asksFirst: query.asksFirst && !query.subject.wantsRows && query.position == nil,
                maximumWaitingChanges: maximumWaitingChanges)
            // If the app fetched rows before the join, it could miss changes in between. So it is told to fetch after
            // the join.
            if isShared, listener.asksFirst, core.machine.hasJoined(channel) {
                listener.isFirst = false
                mailbox.put(.refetch(nil, nil))
            }
            core.listeners[number] = listener
            guard !isShared else { return (number, nil, channel) }
            core.subjects[channel] = query.subject
            if shared == nil { core.shared[query.subject] = channel } else { core.aside.insert(channel) }
            let topic = Self.topic(query.subject) + (shared == nil ? "" : "#\(number)")
            var request = ChannelRequest(topic: topic, bindings: query.subject.bindings, position: query.position)
            request.wantsRows = query.subject.wantsRows
            return (number, request, channel)
        }
        if let request { handle(.subscribe(channel, request)) }
        return (number, mailbox)
    }

    /// Returns a topic that is the same after every launch of the app, so that the server recognizes the channel.
    private static func topic(_ subject: Subject) -> String {
        (subject.wantsRows ? "tidewire:rows:" : "tidewire:") + fingerprint(subject.bindings)
    }

    static func fingerprint(_ bindings: [TableBinding]) -> String {
        let text = JSONValue.array(bindings.map(\.json)).json
        let hash = text.utf8.reduce(0xcbf2_9ce4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
        return String(hash, radix: 16)
    }

    func stopListening(_ number: Int) {
        let channel: Int? = core.withLock { core in
            guard let listener = core.listeners.removeValue(forKey: number) else { return nil }
            listener.mailbox.finish(discarding: true)
            return core.forget(listener.channel)
        }
        if let channel { handle(.unsubscribe(channel)) }
    }

    /// Moves listeners from separate channels to the shared channel once they have reached its position. The shared
    /// channel delivers all later changes. The listeners skip those that they already have.
    private func joinShared() {
        let left = core.withLock { core in
            core.aside.sorted().compactMap { channel -> Int? in
                guard let subject = core.subjects[channel] else { return nil }
                guard let shared = core.shared[subject] else {
                    // The shared channel has no listeners any more, so this channel takes its place.
                    core.shared[subject] = channel
                    core.aside.remove(channel)
                    return nil
                }
                guard let here = core.machine.standing(channel), let there = core.machine.standing(shared),
                    here.covers(there)
                else { return nil }
                for (number, listener) in core.listeners where listener.channel == channel {
                    // A listener that has missed changes needs a separate channel to ask for them again.
                    if listener.isOverrun { return nil }
                    core.listeners[number]?.channel = shared
                }
                return core.forget(channel)
            }
        }
        for channel in left { handle(.unsubscribe(channel)) }
    }

    /// Records that a query took `changes` changes from its mailbox. Once the mailbox is empty, asks the server for
    /// dropped changes again.
    func took(_ number: Int, _ changes: Int, to position: LogPosition?) {
        let rewind: (Int, LogPosition)? = core.withLock { core in
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

    // MARK: Output

    /// Passes an output of a channel to its queries and its room.
    private func tell(_ channel: Int, _ output: ChannelMachine.Output) {
        if case .answered(let push, let problem) = output {
            let push = core.withLock { $0.pushes.removeValue(forKey: push) }
            push?.answer(problem)
            return
        }
        let room = core.withLock { core -> RoomListener? in
            for number in core.listeners.keys.sorted() where core.listeners[number]?.channel == channel {
                core.listeners[number]?.hear(output, at: clock.now)
            }
            return core.rooms[channel]
        }
        room?.hear(output)
    }

    /// Puts the batches that are due into the mailboxes of their queries.
    private func handOver() {
        core.withLock { core in
            for number in core.listeners.keys.sorted() {
                while let batch = core.listeners[number]?.batcher.due(at: clock.now) {
                    core.listeners[number]?.put(batch)
                }
            }
        }
    }

    /// Puts all changes that wait in batches into the mailboxes. Called before the system suspends the app.
    func flush() {
        core.withLock { core in
            for number in core.listeners.keys.sorted() {
                if let batch = core.listeners[number]?.batcher.flush() { core.listeners[number]?.put(batch) }
            }
        }
    }

    // MARK: Rooms

    /// Returns a new number for a channel that a room will enter.
    func nextNumber() -> Int {
        core.withLock { core in
            core.next += 1
            return core.next
        }
    }

    func enter(_ number: Int, _ request: ChannelRequest, _ room: RoomListener) {
        let replaced = core.withLock { core in
            let replaced = core.rooms.filter { $0.value.topic == room.topic }
            for number in replaced.keys { core.rooms[number] = nil }
            core.rooms[number] = room
            return replaced
        }
        handle(.subscribe(number, request))
        // The server has one channel per topic, and the new channel replaces the old one.
        for (number, room) in replaced {
            handle(.unsubscribe(number))
            answerPushes { $0 == number }
            room.end(.replaced)
        }
    }

    func leave(_ number: Int) {
        _ = core.withLock { $0.rooms.removeValue(forKey: number) }
        handle(.unsubscribe(number))
        answerPushes { $0 == number }
    }

    /// Fails the pushes (messages whose answer the client awaits) on channels that the client has left, because the
    /// server can no longer answer them.
    private func answerPushes(where isLeft: (Int) -> Bool) {
        let pushes = core.withLock { core in
            let left = core.pushes.filter { isLeft($0.value.channel) }
            for number in left.keys { core.pushes[number] = nil }
            return left.sorted { $0.key < $1.key }.map(\.value)
        }
        for push in pushes { push.answer(Self.left) }
    }

    private static let left = TidewireProblem(
        code: "Left", message: "the room was left before the answer", severity: .error)

    /// Sends an event on a channel. Calls `answer` with nil when the server has accepted it, otherwise with a problem.
    func push(
        _ channel: Int, event: String, payload: JSONValue, _ answer: @escaping @Sendable (TidewireProblem?) -> Void
    ) {
        let number = core.withLock { core in
            core.next += 1
            core.pushes[core.next] = Push(channel: channel, answer: answer)
            return core.next
        }
        handle(.push(channel: channel, number: number, event: event, payload: payload))
    }

    // MARK: Account

    /// Ends all subscriptions and rooms. Listeners receive nothing afterwards.
    func signOut() {
        let rooms = core.withLock { core in
            for listener in core.listeners.values { listener.mailbox.finish(discarding: true) }
            (core.listeners, core.shared, core.subjects, core.aside) = ([:], [:], [:], [])
            defer { core.rooms = [:] }
            return core.rooms.values.map { $0 }
        }
        for room in rooms { room.end(.signedOut) }
        handle(.account(.signedOut))
        answerPushes { _ in true }
        storage.removeAll()
    }
}

extension Engine.Listener {
    /// Maximum number of rows in one snapshot, equal to the hub's limit.
    static let maximumRows = 100_000

    /// Handles an output of the query's channel.
    mutating func hear(_ output: ChannelMachine.Output, at now: Duration) {
        switch output {
        case .change(let change):
            if let behind = change.position {
                if let position, position.covers(behind) { return }
                position = behind
            }
            if !isOverrun { batcher.add(change, at: now) }
        case .joined(let recovered, let at):
            if !recovered {
                position = at
                lastPut = lastPut ?? at
            }
            if isFirst, asksFirst, !recovered { mailbox.put(.refetch(nil, position)) }
            isFirst = false
        case .rowsBegin:
            if let batch = batcher.flush() { put(batch) }
            rows = []
        case .row(let row):
            if rows.count <= Self.maximumRows { rows.append(row) }
        case .rowsEnd(let reason, let at):
            let isWhole = rows.count <= Self.maximumRows
            let words = "there are more than \(Self.maximumRows) rows: narrow the filter, or fetch them in parts"
            mailbox.put(isWhole ? .rows(rows, reason, at) : .refetch(.changesMissing(words), at))
            (rows, position, lastPut) = ([], at, at)
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

    /// Puts a batch into the mailbox. If the mailbox is full, drops the batch. The engine later asks the server for the
    /// changes after `lastPut` again.
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
