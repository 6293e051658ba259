import System

/// Record of one connection in its loop. It is small and plain, because most connections are idle most of the time.
/// Data that few connections need (incomplete input, blocked output, TLS) is stored elsewhere.
struct Connection: BitwiseCopyable {
    enum Stage: UInt8, BitwiseCopyable {
        /// The seat is free. Zeroed memory also has this stage.
        case free
        case handshaking
        case open
        /// The hub still sends queued output. It no longer reads input.
        case closing
        /// The hub has finished sending. It keeps the socket open until the peer has closed too, or until the deadline.
        case lingering
        /// The socket is closed. The loop tells the application at the end of the turn.
        case ended
    }

    struct Flags: OptionSet, BitwiseCopyable {
        let rawValue: UInt8

        /// The connection is in the list of connections with output queued in this turn.
        static let isQueued = Flags(rawValue: 1)
        static let readingIsPaused = Flags(rawValue: 2)
        /// The connection is in the list of connections whose input is examined again without a new event.
        static let isReadAgain = Flags(rawValue: 4)
        /// The peer has finished sending.
        static let peerFinished = Flags(rawValue: 8)
        /// The loop has called the application's `opened` for the connection.
        static let wasOpened = Flags(rawValue: 16)
        static let hasFallenBehind = Flags(rawValue: 32)
        /// The connection is in the list of those for which output was queued since the last `takeSent()`.
        static let wasSent = Flags(rawValue: 64)
        /// The backlog has exceeded `filledBytes` and has not been emptied since.
        static let isFilled = Flags(rawValue: 128)
    }

    /// Output queued in this turn: a list of links in the loop's outboxes.
    struct Outbox: BitwiseCopyable {
        /// First link of the list; 0 if no output is queued.
        private(set) var first: UInt32 = 0
        /// Last link of the list; 0 if no output is queued.
        private var last: UInt32 = 0
        private(set) var byteCount: UInt32 = 0

        /// Appends a link to the list. Returns the link before it; 0 if the list was empty.
        @inline(__always)
        mutating func append(_ link: UInt32, byteCount: UInt32) -> UInt32 {
            defer { last = link }
            if last == 0 { first = link }
            self.byteCount &+= byteCount
            return last
        }
    }

    private(set) var descriptor: Int32
    let generation: UInt32
    private(set) var stage: Stage
    private(set) var flags: Flags = []
    /// Events for which epoll watches the connection's socket.
    private var watched: UInt16 = 0
    var outbox = Outbox()
    /// Index of the connection's blocked output in the loop's `Backlogs`; 0 for none.
    private(set) var backlog: UInt32 = 0
    /// Index of the connection's TLS session in the loop's `SecureSessions`; 0 for none.
    private(set) var session: UInt32 = 0
    var input = KeptInput()
    var activity: PeerActivity
    /// Index, in the loop's `InputAccounts`, of the budget to which the connection's incomplete input is charged.
    private(set) var account: UInt16 = 0
    /// Monotonic time, in nanoseconds, at which the handshake, the closing or the lingering must be done; 0 for no
    /// deadline.
    private(set) var deadline: UInt64 = 0
    /// Reason why the connection ends. Meaningless until the loop has decided to end the connection.
    private(set) var end = ConnectionEnd.stopped

    init(descriptor: Int32, generation: UInt32, stage: Stage, now: UInt64) {
        self.descriptor = descriptor
        self.generation = generation
        self.stage = stage
        activity = PeerActivity(now: now)
    }

    // Inlined, because a call would copy the whole record.
    @inline(__always) var isLive: Bool { stage != .free && stage != .ended }
    /// True if the connection has a socket. Simulated clients have none; see `FrameWitness`.
    @inline(__always) var hasSocket: Bool { descriptor >= 0 }
    @inline(__always) func has(_ flag: Flags) -> Bool { flags.contains(flag) }

    /// Sets a flag. Returns false if it was set before.
    @discardableResult @inline(__always)
    mutating func set(_ flag: Flags) -> Bool { flags.insert(flag).inserted }

    /// Clears a flag. Returns false if it was not set.
    @discardableResult @inline(__always)
    mutating func clear(_ flag: Flags) -> Bool { flags.remove(flag) != nil }

    // MARK: Stages

    mutating func startHandshake(session: UInt32, deadline: UInt64) {
        self.session = session
        self.deadline = deadline
        stage = .handshaking
    }

    mutating func finishHandshake(now: UInt64) {
        deadline = 0
        stage = .open
        activity.restartSilence(at: now)
    }

    mutating func startClosing(_ reason: ConnectionEnd, deadline: UInt64) {
        end = reason
        self.deadline = deadline
        stage = .closing
    }

    mutating func startLingering() { stage = .lingering }

    /// Records the end of the connection, whose socket the loop has closed. The input stays in memory until the loop
    /// has told the application.
    mutating func end(_ reason: ConnectionEnd) {
        outbox = Outbox()
        descriptor = -1
        stage = .ended
        end = reason
    }

    mutating func giveUpSeat() {
        precondition(stage == .ended, "only an ended connection's seat is free")
        stage = .free
    }

    // MARK: Parts that lie elsewhere

    /// Takes the connection out of the list of queued output. Returns the first link, or 0 if nothing is queued; nil if
    /// the connection can send no more.
    @inline(__always)
    mutating func takeOutbox() -> UInt32? {
        flags.remove(.isQueued)
        guard stage == .open || stage == .closing else { return nil }
        defer { outbox = Outbox() }
        return outbox.first
    }

    mutating func block(by backlog: UInt32) {
        precondition(self.backlog == 0, "a blocked connection has a backlog already")
        self.backlog = backlog
    }

    /// Removes and returns the index of the backlog; 0 if there is none.
    mutating func takeBacklog() -> UInt32 {
        defer { backlog = 0 }
        return backlog
    }

    /// Removes and returns the index of the TLS session; 0 if there is none.
    mutating func takeSession() -> UInt32 {
        defer { session = 0 }
        return session
    }

    mutating func charge(to account: UInt16) { self.account = account }

    // MARK: Events

    /// Events for which epoll should watch in the present stage; nil if the code for that stage chooses them.
    var wantedEvents: Epoll.Events? {
        let room: Epoll.Events = backlog == 0 ? [] : .writable
        switch stage {
        case .open: return flags.contains(.readingIsPaused) ? room : room.union([.readable, .peerFinished])
        case .lingering: return [.readable, .peerFinished]
        case .closing: return room
        case .handshaking, .free, .ended: return nil
        }
    }

    /// Records the events for which epoll watches the connection. Returns true if they differ from the events before.
    mutating func isNewlyWatched(for events: Epoll.Events) -> Bool {
        let bits = UInt16(truncatingIfNeeded: events.rawValue)
        defer { watched = bits }
        return watched != bits
    }

    // MARK: The sweep

    /// Result of checking one connection for overdue work.
    enum SweepFinding: Equatable {
        /// No work is overdue. The next check is needed at this monotonic time, in nanoseconds; `.max` for never.
        case nothing(before: UInt64)
        /// The handshake, the closing or the lingering has taken too long.
        case deadlineIsPast
        /// The peer has not completed a message in time.
        case inputIsOverdue
        /// The peer has sent nothing for the idle limit. The next check is needed at the monotonic time `next`, in
        /// nanoseconds.
        case silence(next: UInt64)
    }

    /// Checks whether anything of the connection is overdue. For a silent connection the idle time starts again.
    mutating func sweep(at now: UInt64, unfinishedLimit: UInt64) -> SweepFinding {
        if deadline != 0 { return deadline > now ? .nothing(before: deadline) : .deadlineIsPast }
        let due = stage == .open ? input.dueTime(limit: unfinishedLimit) : .max
        if due <= now { return .inputIsOverdue }
        let silentAt = activity.silentAt
        if silentAt > now { return .nothing(before: min(due, silentAt)) }
        activity.restartSilence(at: now)
        return .silence(next: min(due, activity.silentAt))
    }
}

/// Record of when a connection's peer last sent bytes, and of how long it may send none. Times are monotonic, in
/// nanoseconds.
struct PeerActivity: BitwiseCopyable {
    private var lastReceived: UInt64
    /// Time after which the peer certainly sent some of the bytes that the loop has read; 0 if no such time is known.
    /// The newest such time is kept.
    private(set) var certainlySentAfter: UInt64 = 0
    /// Time for which the peer may send nothing, in milliseconds; 0 for no limit.
    private var idleMilliseconds: UInt32 = 0
    /// True if the next bytes that the loop reads may have arrived before its last look for events.
    private var inputMayHaveWaited = false

    init(now: UInt64) { lastReceived = now }

    /// Records that the loop read input at `now`, having last looked for events at `lookedAt`. With `fillsRoom` the
    /// input filled the buffer, so the socket may hold more.
    @inline(__always)
    mutating func receive(at now: UInt64, lookedAt: UInt64, fillsRoom: Bool) {
        lastReceived = now
        if !inputMayHaveWaited { certainlySentAfter = lookedAt }
        inputMayHaveWaited = fillsRoom
    }

    /// Records that the loop leaves input in the socket, so the next input that it reads may be old.
    mutating func leaveInput() { inputMayHaveWaited = true }

    /// Sets the idle limit; 0 means none. Returns the limit in nanoseconds as stored: rounded up to whole milliseconds,
    /// so that a short limit does not become 0.
    mutating func setIdleLimit(nanoseconds: UInt64) -> UInt64 {
        idleMilliseconds = UInt32(clamping: nanoseconds / 1_000_000 + (nanoseconds % 1_000_000 > 0 ? 1 : 0))
        return UInt64(idleMilliseconds) * 1_000_000
    }

    mutating func restartSilence(at now: UInt64) { lastReceived = now }

    /// Time at which the idle limit ends, if the peer sends nothing until then; `.max` without a limit.
    var silentAt: UInt64 {
        idleMilliseconds == 0 ? .max : lastReceived + UInt64(idleMilliseconds) * 1_000_000
    }
}
