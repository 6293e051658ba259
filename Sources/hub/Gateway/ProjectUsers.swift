import Settings
import Synchronization

/// Users of a project, counted against its limits: open sockets that have joined a channel, or are joining one.
struct ProjectUsers: ~Copyable, Sendable {
    private let currentLimits: Mutex<ProjectLimits>
    private let counted = Atomic<Int>(0)

    init(_ limits: ProjectLimits) { currentLimits = Mutex(limits) }

    var limits: ProjectLimits { currentLimits.withLock { $0 } }

    func replace(_ limits: ProjectLimits) { currentLimits.withLock { $0 = limits } }

    var count: Int { counted.load(ordering: .relaxed) }

    /// True if the project has room for one more user.
    var hasRoom: Bool { limits.maximumConcurrentUsers.map { count < $0 } ?? true }

    /// Counts the session as a user. The caller reserves before the join is decided, because the decision takes a while
    /// and many clients may ask meanwhile. Returns false if there is no room.
    func reserve(for session: Session) -> Bool {
        guard !session.use.isCounted else { return true }
        let count = counted.wrappingAdd(1, ordering: .relaxed).newValue
        if let most = limits.maximumConcurrentUsers, count > most {
            counted.wrappingSubtract(1, ordering: .relaxed)
            return false
        }
        session.use.isCounted = true
        return true
    }

    /// Releases the reservation after a failed join. A session that never joined a channel, and is joining none, is no
    /// user.
    func giveBack(_ session: Session) {
        if !session.use.hasJoined, session.channels.isEmpty { hasEnded(session) }
    }

    func hasEnded(_ session: Session) {
        guard session.use.isCounted else { return }
        session.use.isCounted = false
        let left = counted.wrappingSubtract(1, ordering: .relaxed).newValue
        assert(left >= 0, "only a user that was counted ends")
    }
}
