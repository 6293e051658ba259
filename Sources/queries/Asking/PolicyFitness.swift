import Synchronization

/// Whether there is a login that may run what policies say.
public enum PolicyAvailability: Sendable, Equatable {
    /// Nobody has looked yet, or the database is away.
    case unknown
    case available
    /// In words for an operator: what is wrong, and what to do.
    case refused(reason: String, hint: String)
}

/// What the connections found out about their login.
public final class PolicyFitness: Sendable {
    private let found = Mutex(PolicyAvailability.unknown)
    private let wanted = Atomic<Bool>(false)

    public init() {}

    public var availability: PolicyAvailability { found.withLock { $0 } }

    /// Somebody wants to know, though nothing is asked that needs it yet. True for the first.
    public func want() -> Bool { !wanted.exchange(true, ordering: .relaxed) }

    public var isWanted: Bool { wanted.load(ordering: .relaxed) }

    /// True where that is news.
    public func set(_ availability: PolicyAvailability) -> Bool {
        found.withLock { found in
            defer { found = availability }
            return found != availability
        }
    }
}
