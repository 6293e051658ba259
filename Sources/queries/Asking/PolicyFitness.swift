import Synchronization

/// Fitness of the login that runs policies.
public enum PolicyAvailability: Sendable, Equatable {
    /// The login has not been examined yet, or the database is unreachable.
    case unknown
    case available
    /// The login must not run policies. The texts tell an operator the reason and the remedy.
    case refused(reason: String, hint: String)
}

/// Result of examining the login that runs policies, shared by the connections with that login.
public final class PolicyFitness: Sendable {
    private let found = Mutex(PolicyAvailability.unknown)
    private let wanted = Atomic<Bool>(false)

    public init() {}

    public var availability: PolicyAvailability { found.withLock { $0 } }

    /// Requests an examination of the login, even if no question needs it yet. Returns true for the first request.
    public func want() -> Bool { !wanted.exchange(true, ordering: .relaxed) }

    public var isWanted: Bool { wanted.load(ordering: .relaxed) }

    /// Stores the result. Returns true if it differs from the result before.
    public func set(_ availability: PolicyAvailability) -> Bool {
        found.withLock { found in
            defer { found = availability }
            return found != availability
        }
    }
}
