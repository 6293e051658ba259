import Settings
import Synchronization

/// Number of a project's users, with its limit. A user is an open socket that has joined a channel or is joining one.
struct ProjectUsers: ~Copyable, Sendable {
    private let currentLimits: Mutex<ProjectLimits>
    private let counted = Atomic<Int>(0)

    init(_ limits: ProjectLimits) { currentLimits = Mutex(limits) }

    var limits: ProjectLimits { currentLimits.withLock { $0 } }

    func replace(_ limits: ProjectLimits) { currentLimits.withLock { $0 = limits } }

    var count: Int { counted.load(ordering: .relaxed) }

    /// True if the limit of the project allows one more user.
    var hasRoom: Bool { limits.maximumConcurrentUsers.map { count < $0 } ?? true }

    /// Counts the session as a user. Returns false if the limit is reached. The caller calls this before the join is
    /// decided, because many clients may join while decisions are pending.
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

    /// Ends the count of a session after a failed join, unless it has joined a channel before or is joining another
    /// one.
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
