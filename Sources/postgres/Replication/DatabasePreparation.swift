import Postgres
import Synchronization

/// What a database is to have before it is followed: made at the first connection, and not again while the hub runs.
public final class DatabasePreparation: Sendable {
    private let make: @Sendable (ConnectionTarget) throws(PostgresError) -> Void
    private let isDone = Atomic(false)

    /// - Parameter make: throws where the database cannot be reached; all else it says itself.
    public init(_ make: @escaping @Sendable (ConnectionTarget) throws(PostgresError) -> Void) {
        self.make = make
    }

    /// The replicator's thread alone calls it.
    func see(to target: ConnectionTarget) throws(PostgresError) {
        if isDone.load(ordering: .relaxed) { return }
        try make(target)
        isDone.store(true, ordering: .relaxed)
    }
}
