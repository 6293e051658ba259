import Postgres
import Synchronization

/// Creation of the objects that a database needs before it is followed: at the first connection, once per run of the
/// hub.
public final class DatabasePreparation: Sendable {
    private let make: @Sendable (ConnectionTarget) throws(PostgresError) -> Void
    private let isDone = Atomic(false)

    /// - Parameter make: throws if the database cannot be reached; reports all other problems itself.
    public init(_ make: @escaping @Sendable (ConnectionTarget) throws(PostgresError) -> Void) {
        self.make = make
    }

    /// Runs the preparation once. Only the replicator's thread calls this method.
    func see(to target: ConnectionTarget) throws(PostgresError) {
        if isDone.load(ordering: .relaxed) { return }
        try make(target)
        isDone.store(true, ordering: .relaxed)
    }
}
