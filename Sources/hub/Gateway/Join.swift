/// A join's way, from the request to a channel that is open. A pure machine: what happened goes in, what is to be done
/// comes out.
///
/// Whether it may be joined, then what came before it, then what it wants of the tables; then the reply. The reply waits
/// for the bindings, so that nothing that is committed after it is missed even by clients that do not wait for
/// "Subscribed to PostgreSQL"; where they take long it goes out without them, and the log waits instead.
struct Join {
    enum Stage: Equatable {
        /// PostgreSQL is asked what it may read.
        case askingRights
        /// What came before it is looked up.
        case readingPast
        /// Its bindings are being placed.
        case binding
        /// The reply is decided.
        case answered
        /// The reply is out: pushes may follow.
        case open
        case refused
    }

    enum Event {
        /// It may be joined.
        case allowed
        case pastRead
        /// Its bindings are in place, or have failed for good.
        case bound
        /// Its bindings have to be found out.
        case bindingsAwaited
        /// They have been awaited for as long as a reply waits.
        case patienceEnded
        case replied
        case refused(String)
    }

    enum Action: Equatable {
        case askRights
        case readPast
        case bind
        /// `patienceEnded` after a while.
        case bePatient
        /// The log waits for its bindings.
        case promiseBindings
        case reply
        case sayWhatBindingsCameTo
        case refuse(String)
    }

    private(set) var stage: Stage
    private let wantsPast: Bool

    /// With what is to be done first.
    static func begin(isPrivate: Bool, wantsPast: Bool) -> (Join, [Action]) {
        var join = Join(stage: .askingRights, wantsPast: wantsPast)
        let first = isPrivate ? [.askRights] : join.take(.allowed)
        return (join, first)
    }

    private init(stage: Stage, wantsPast: Bool) {
        self.stage = stage
        self.wantsPast = wantsPast
    }

    /// Its bindings are placed, and looked at again whenever the catalog moves.
    var isBinding: Bool { stage == .binding || isAnswered }
    var isAnswered: Bool { stage == .answered || isOpen }
    var isOpen: Bool { stage == .open }

    /// What does not concern the stage it is in changes nothing: answers may come to what nobody waits for any more.
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
        stage = next
        return actions
    }
}
