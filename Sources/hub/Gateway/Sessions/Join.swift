/// State machine of a join, from the client's request to an open channel. Events go in, actions come out.
///
/// The order is: rights, past messages, bindings, reply. The reply waits for the bindings. So a client misses nothing
/// that is committed after the reply, even if it ignores "Subscribed to PostgreSQL". If the bindings take too long, the
/// hub replies without them, and the follower of the log waits for them instead.
struct Join {
    enum Stage: Equatable {
        /// The hub has asked PostgreSQL for the channel's rights to read.
        case askingRights
        /// The hub searches for past messages.
        case readingPast
        /// The hub resolves and places the channel's bindings.
        case binding
        /// The hub has decided to accept the join, but has not sent the reply.
        case answered
        /// The hub has sent the reply, and the client may send messages.
        case open
        case refused
    }

    enum Event {
        /// The client has the right to join the channel.
        case allowed
        /// The search for past messages has ended.
        case pastRead
        /// The bindings are placed, or have failed for good.
        case bound
        /// The catalog must be asked about the bindings.
        case bindingsAwaited
        /// The maximum time for which a reply waits for bindings has passed.
        case patienceEnded
        /// The reply has been sent.
        case replied
        /// The hub refuses the join, for this reason.
        case refused(String)
    }

    /// Step of a join that the caller must take.
    enum Action: Equatable {
        case askRights
        case readPast
        case bind
        /// Start a timer that ends with the event `patienceEnded`.
        case bePatient
        /// Let the follower of the log wait for the channel's bindings.
        case promiseBindings
        case reply
        /// Send the client the result of its bindings.
        case sendBindingResults
        case refuse(String)
    }

    private(set) var stage: Stage
    private let wantsPast: Bool

    /// Creates the state machine of a join. Returns it with its first actions.
    static func begin(isPrivate: Bool, wantsPast: Bool) -> (Join, [Action]) {
        var join = Join(stage: .askingRights, wantsPast: wantsPast)
        let first = isPrivate ? [.askRights] : join.take(.allowed)
        return (join, first)
    }

    private init(stage: Stage, wantsPast: Bool) {
        self.stage = stage
        self.wantsPast = wantsPast
    }

    /// True if the channel's bindings are placed or being placed, so that they are checked again when the catalog
    /// changes.
    var isBinding: Bool { stage == .binding || isAnswered }
    /// True if the hub has decided to accept the join, even if the reply is not sent yet.
    var isAnswered: Bool { stage == .answered || isOpen }
    /// True if the hub has sent the join's reply.
    var isOpen: Bool { stage == .open }

    /// Applies an event to the join and returns the steps that the caller must take. An event that does not fit the
    /// stage has no effect, because answers may arrive late.
    mutating func take(_ event: Event) -> [Action] {
        switch (stage, event) {
        case (.askingRights, .allowed) where wantsPast: return go(to: .readingPast, .readPast)
        case (.askingRights, .allowed), (.readingPast, .pastRead): return go(to: .binding, .bind)
        case (.binding, .bindingsAwaited): return [.bePatient]
        case (.binding, .bound): return go(to: .answered, .reply)
        case (.binding, .patienceEnded): return go(to: .answered, .promiseBindings, .reply)
        case (.answered, .replied): return go(to: .open)
        case (.open, .bound): return [.sendBindingResults]
        case (.askingRights, .refused(let reason)), (.readingPast, .refused(let reason)),
            (.binding, .refused(let reason)):
            return go(to: .refused, .refuse(reason))
        default: return []
        }
    }

    private mutating func go(to next: Stage, _ actions: Action...) -> [Action] {
        assert(stage != .open && stage != .refused, "a join that is over stays so")
        stage = next
        return actions
    }
}
