import Synchronization

/// State of the login that runs policies.
public enum PolicyAvailability: Sendable, Equatable {
    /// The login has not been checked yet, or the database cannot be reached.
    case unknown
    case available
    /// The login must not run policies. The texts tell an operator the reason and the remedy.
    case refused(reason: String, hint: String)
}

/// Result that the connections found for their login.
public final class PolicyFitness: Sendable {
    private let found = Mutex(PolicyAvailability.unknown)
    private let wanted = Atomic<Bool>(false)

    public init() {}

    public var availability: PolicyAvailability { found.withLock { $0 } }

    /// Requests a check of the login, even if no question needs it yet. Returns true for the first request.
    public func want() -> Bool { !wanted.exchange(true, ordering: .relaxed) }

    public var isWanted: Bool { wanted.load(ordering: .relaxed) }

    /// Stores the result. Returns true if it has changed.
    public func set(_ availability: PolicyAvailability) -> Bool {
        found.withLock { found in
            defer { found = availability }
            return found != availability
        }
    }
}
