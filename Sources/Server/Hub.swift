import Diagnostics
import Glibc
import Postgres
import Replication
import System

/// The hub as one thing: configuration in, a running service out, and an orderly end.
public final class Hub: Sendable {
    public static let endingSignals: [Int32] = [SIGINT, SIGTERM]

    private let ingest: IngestService

    /// Checks the limits, opens the log and begins to follow the database. Signals must be blocked before (see
    /// `Hub.blockSignals`), so that the threads started here inherit that.
    public init(_ configuration: Configuration) throws {
        Limits.checkInvariants()
        guard let database = configuration.databaseURL else { throw HubError.noDatabase }
        try Directories.make(configuration.dataDirectory)
        Log.shared.info(
            "starting",
            [
                .version(Product.version), .pid(getpid()), .path(configuration.dataDirectory),
                .publication(configuration.publication), .slot(configuration.slot),
            ])
        ingest = try IngestService(
            IngestService.Settings(
                replication: ReplicationSettings(
                    target: ConnectionTarget(database.revealed), publication: configuration.publication,
                    slot: configuration.slot, mayCreateSlot: configuration.createsSlot,
                    mayCreatePublication: configuration.createsPublication,
                    streaming: configuration.streamsTransactionsInProgress),
                dataDirectory: configuration.dataDirectory, segmentBytes: configuration.segmentBytes,
                retentionAge: configuration.retentionAge, retentionBytes: configuration.retentionBytes))
    }

    /// Whether changes arrive right now, and if not, why.
    public var status: ReplicationStatus { ingest.status }

    public static func blockSignals() { Signals.block(endingSignals) }

    /// Sleeps until a signal says to end, or the time is up; nil then.
    public static func waitForSignal(milliseconds: Int = 86_400_000) -> Int32? {
        Signals.wait(for: endingSignals, milliseconds: milliseconds)
    }

    public func stop() {
        ingest.stop()
        Log.shared.info("stopped")
    }
}

public enum HubError: Error, CustomStringConvertible {
    case noDatabase

    public var description: String {
        switch self {
        case .noDatabase:
            "no database is configured: set TIDEWIRE_DATABASE_URL (or --database-url, or DB_HOST, DB_USER, DB_PASSWORD, "
                + "DB_NAME), or run 'tidewire dev' for one that is made for you"
        }
    }
}
