import Postgres
import Synchronization

/// Creation of the objects that the hub needs in a database. It runs once in each run of the hub, at the first
/// connection.
public final class DatabasePreparation: Sendable {
    private let make: @Sendable (ConnectionTarget) throws(PostgresError) -> Void
    private let isDone = Atomic(false)

    /// Creates a preparation that runs `make`.
    ///
    /// - Parameter make: throws if the database cannot be reached; reports all other problems itself.
    public init(_ make: @escaping @Sendable (ConnectionTarget) throws(PostgresError) -> Void) {
        self.make = make
    }

    /// Runs the preparation if it has not run yet. Only the replicator's thread calls this method.
    func see(to target: ConnectionTarget) throws(PostgresError) {
        if isDone.load(ordering: .relaxed) { return }
        try make(target)
        isDone.store(true, ordering: .relaxed)
    }
}
