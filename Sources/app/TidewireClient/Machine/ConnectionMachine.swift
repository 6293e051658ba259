/// State machine of the connection to the server. It gets events with their times and returns actions. It owns no clock
/// and no socket.
struct ConnectionMachine: Sendable {
    enum Phase: Sendable, Hashable {
        case idle
        case waiting(attempt: Int, until: Duration, why: Tidewire.Interruption)
        case opening(attempt: Int, deadline: Duration)
        case open(Heartbeat)
        /// The server refused the project's key. The client waits for another key or token.
        case refused(Tidewire.Interruption)
        /// The device has no network. The client waits until it has one.
        case withoutNetwork
        /// The app has been in the background for too long, so the client has disconnected.
        case suspended
    }

    /// State of the heartbeat. If `awaited` is nil, the client sends the next heartbeat at `due`. Otherwise the answer
    /// to the heartbeat with that ref must arrive before `due`.
    struct Heartbeat: Sendable, Hashable {
        var due: Duration
        var awaited: String?
    }

    enum Action: Sendable, Hashable {
        case open
        case close
        case sendHeartbeat
        /// The connection is lost, and all channels with it. The reason is nil if the client ended the connection
        /// itself.
        case lost(Tidewire.Interruption?)
    }

    static let heartbeatInterval = Duration.seconds(25)
    /// Time limit for the answer to a heartbeat that checks whether the socket still works.
    static let probePatience = Duration.seconds(5)
    /// Time limit for opening a connection.
    static let openingPatience = Duration.seconds(15)
    /// Time for which the connection stays open while the app is in the background.
    static let backgroundGrace = Duration.seconds(30)
    /// Mean time that the client adds to the delay before the next attempt if the server asked it to wait.
    static let pause = Duration.seconds(2)

    private(set) var phase = Phase.idle
    /// Number of failed attempts since the last message from the server. A server that accepts a connection and closes
    /// it immediately counts as a failure.
    private(set) var failures = 0
    private var isWanted = false
    private var isInBackground = false
    private var suspendAt: Duration?
    private var isReachable = true

    var isOpen: Bool { if case .open = phase { true } else { false } }

    // MARK: Requests

    /// Records whether the client needs a connection. Starts or ends the connection accordingly.
    mutating func wanted(_ isWanted: Bool, at now: Duration) -> [Action] {
        guard isWanted != self.isWanted else { return [] }
        self.isWanted = isWanted
        if isWanted { return start(at: now) }
        failures = 0
        return end(into: .idle)
    }

    /// Tries again after a change of the key, the token or the user, if the server had refused the old one.
    mutating func credentialsChanged(at now: Duration) -> [Action] {
        guard case .refused = phase else { return [] }
        failures = 0
        phase = .idle
        return start(at: now)
    }

    mutating func networkChanged(isReachable: Bool, at now: Duration) -> [Action] {
        self.isReachable = isReachable
        switch (isReachable, phase) {
        case (false, .waiting): phase = .withoutNetwork
        // The lost network may not be the one that the socket uses. If the socket breaks, it reports that itself.
        case (true, .open): return probe(at: now)
        case (true, .withoutNetwork), (true, .waiting): return restart(at: now)
        default: break
        }
        return []
    }

    mutating func wentToBackground(at now: Duration) {
        guard !isInBackground else { return }
        isInBackground = true
        suspendAt = now + Self.backgroundGrace
    }

    mutating func cameToForeground(at now: Duration) -> [Action] {
        guard isInBackground else { return [] }
        isInBackground = false
        suspendAt = nil
        switch phase {
        case .open: return probe(at: now)
        case .suspended, .waiting: return restart(at: now)
        default: return []
        }
    }

    // MARK: Events

    /// Records that the connection is open.
    mutating func opened(at now: Duration) {
        guard case .opening = phase else { return }
        phase = .open(Heartbeat(due: now + Self.heartbeatInterval, awaited: nil))
    }

    /// Records that the server sent a message, so that the failures before it no longer count.
    mutating func received() { failures = 0 }

    mutating func heartbeatSent(ref: String, at now: Duration) {
        guard case .open(var heartbeat) = phase else { return }
        heartbeat.awaited = ref
        phase = .open(heartbeat)
    }

    mutating func heartbeatAnswered(ref: String?, at now: Duration) {
        guard case .open(let heartbeat) = phase, heartbeat.awaited == ref else { return }
        phase = .open(Heartbeat(due: now + Self.heartbeatInterval, awaited: nil))
    }

    /// Handles the end of the connection, and schedules the next attempt.
    mutating func interrupted(_ why: Tidewire.Interruption, at now: Duration, chance: inout Chance) -> [Action] {
        switch phase {
        case .idle, .suspended, .refused, .withoutNetwork, .waiting: return []
        case .opening, .open: break
        }
        guard !why.needsAnotherKey else {
            phase = .refused(why)
            return [.lost(why)]
        }
        failures += 1
        if isReachable {
            var delay = Backoff.delay(attempt: failures, chance: &chance)
            if why.asksForPause { delay += Self.pause * (0.5 + chance.fraction()) }
            phase = .waiting(attempt: failures, until: now + min(delay, Backoff.longest), why: why)
        } else {
            phase = .withoutNetwork
        }
        return [.lost(why)]
    }

    /// Does what is due at this time: an attempt, a heartbeat, or the end of a connection without an answer.
    mutating func woke(at now: Duration, chance: inout Chance) -> [Action] {
        if let suspendAt, now >= suspendAt {
            self.suspendAt = nil
            if phase != .idle { return end(into: .suspended) }
        }
        switch phase {
        case .waiting(_, let until, _) where now >= until: return start(at: now)
        case .opening(_, let deadline) where now >= deadline:
            return [.close] + interrupted(.silent, at: now, chance: &chance)
        case .open(var heartbeat) where now >= heartbeat.due:
            if heartbeat.awaited != nil { return [.close] + interrupted(.silent, at: now, chance: &chance) }
            heartbeat.due = now + Self.heartbeatInterval
            phase = .open(heartbeat)
            return [.sendHeartbeat]
        default: return []
        }
    }

    /// Time at which the machine must act next; nil if it only waits for events.
    var nextWake: Duration? {
        let own: Duration? =
            switch phase {
            case .waiting(_, let until, _): until
            case .opening(_, let deadline): deadline
            case .open(let heartbeat): heartbeat.due
            case .idle, .refused, .withoutNetwork, .suspended: nil
            }
        guard let suspendAt else { return own }
        return min(own ?? suspendAt, suspendAt)
    }

    // MARK: Steps

    /// Opens a connection if the client needs one.
    private mutating func start(at now: Duration) -> [Action] {
        guard isWanted else { return [] }
        phase = .opening(attempt: failures + 1, deadline: now + Self.openingPatience)
        return [.open]
    }

    /// Opens a connection without waiting for the delay after earlier failures.
    private mutating func restart(at now: Duration) -> [Action] {
        failures = 0
        phase = .idle
        return start(at: now)
    }

    /// Sends a heartbeat to check whether the socket still works.
    private mutating func probe(at now: Duration) -> [Action] {
        guard case .open = phase else { return [] }
        phase = .open(Heartbeat(due: now + Self.probePatience, awaited: nil))
        return [.sendHeartbeat]
    }

    private mutating func end(into phase: Phase) -> [Action] {
        let wasThere =
            switch self.phase {
            case .opening, .open: true
            default: false
            }
        self.phase = phase
        return wasThere ? [.close, .lost(nil)] : []
    }
}
