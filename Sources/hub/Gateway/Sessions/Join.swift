/// State machine of a join, from the request to an open channel. The machine is pure: events go in, actions come out.
///
/// The order is: rights, past messages, bindings, reply. The reply waits for the bindings, so that a client misses
/// nothing committed after the reply, even if it ignores "Subscribed to PostgreSQL". If the bindings take long, the hub
/// replies without them, and the log waits instead.
struct Join {
    enum Stage: Equatable {
        /// The hub asks PostgreSQL for the channel's rights to read.
        case askingRights
        /// The hub looks up past messages.
        case readingPast
        /// The hub places the channel's bindings.
        case binding
        /// The hub has decided on the reply.
        case answered
        /// The hub has sent the reply, and the client may send pushes.
        case open
        case refused
    }

    enum Event {
        /// The channel may be joined.
        case allowed
        case pastRead
        /// The bindings are in place, or have failed for good.
        case bound
        /// The bindings are not known yet; the catalog must be asked.
        case bindingsAwaited
        /// The longest time that a reply waits for bindings has passed.
        case patienceEnded
        case replied
        case refused(String)
    }

    enum Action: Equatable {
        case askRights
        case readPast
        case bind
        /// The caller starts a timer that ends with `patienceEnded`.
        case bePatient
        /// The log waits for the channel's bindings.
        case promiseBindings
        case reply
        case sayWhatBindingsCameTo
        case refuse(String)
    }

    private(set) var stage: Stage
    private let wantsPast: Bool

    /// Returns a new join and its first actions.
    static func begin(isPrivate: Bool, wantsPast: Bool) -> (Join, [Action]) {
        var join = Join(stage: .askingRights, wantsPast: wantsPast)
        let first = isPrivate ? [.askRights] : join.take(.allowed)
        return (join, first)
    }

    private init(stage: Stage, wantsPast: Bool) {
        self.stage = stage
        self.wantsPast = wantsPast
    }

    /// True if the bindings are placed, and are checked again whenever the catalog changes.
    var isBinding: Bool { stage == .binding || isAnswered }
    var isAnswered: Bool { stage == .answered || isOpen }
    var isOpen: Bool { stage == .open }

    /// Applies an event and returns the actions that follow. An event that does not fit the stage changes nothing: a
    /// late answer may arrive after the join has moved on.
    mutating func take(_ event: Event) -> [Action] {
        switch (stage, event) {
        case (.askingRights, .allowed) where wantsPast: return go(to: .readingPast, .readPast)
        case (.askingRights, .allowed), (.readingPast, .pastRead): return go(to: .binding, .bind)
        case (.binding, .bindingsAwaited): return [.bePatient]
        case (.binding, .bound): return go(to: .answered, .reply)
        case (.binding, .patienceEnded): return go(to: .answered, .promiseBindings, .reply)
        case (.answered, .replied): return go(to: .open)
        case (.open, .bound): return [.sayWhatBindingsCameTo]
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
