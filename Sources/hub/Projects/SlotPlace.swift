import Diagnostics
import Postgres
import System

/// Replication slot, and the database in which it is.
struct SlotPlace: Sendable {
    let slot: String
    let target: ConnectionTarget

    init(slot: String, _ target: ConnectionTarget) { (self.slot, self.target) = (slot, target) }

    /// True if both may be the same slot. Servers are not compared: one server has many addresses, and a slot that
    /// somebody reads must not be dropped.
    func mayBe(_ other: SlotPlace) -> Bool {
        guard slot == other.slot else { return false }
        guard let own = databaseName, let theirs = other.databaseName else { return true }
        return own == theirs
    }

    /// True if both are certainly the same slot: one name on one server, in any database, as slots belong to the
    /// server.
    func isSame(as other: SlotPlace) -> Bool { slot == other.slot && server != nil && server == other.server }

    /// Host and port of the address; nil for a text that libpq does not read.
    private var server: [String]? {
        guard let parameters = try? target.parameters() else { return nil }
        func last(_ name: String) -> String? { parameters.last { $0.0 == name }?.1 }
        return [(last("hostaddr") ?? last("host") ?? "").lowercased(), last("port") ?? "5432"]
    }

    /// Name of the database as libpq finds it; nil for a text that libpq does not read.
    private var databaseName: String? {
        guard let parameters = try? target.parameters() else { return nil }
        func last(_ name: String) -> String? { parameters.last { $0.0 == name }?.1 }
        return last("dbname") ?? last("user") ?? ""
    }

    /// Drops the slot, if it is in this database and of the kind that the hub makes. A reader that has just released
    /// the slot may take a moment to end.
    func drop() throws(PostgresError) {
        let connection = try Connection(target)
        for attempt in 1...Self.attempts {
            do throws(PostgresError) {
                try connection.query(
                    "SELECT pg_catalog.pg_drop_replication_slot(slot_name) FROM pg_catalog.pg_replication_slots "
                        + "WHERE slot_name = $1 AND database = pg_catalog.current_database() AND plugin = 'pgoutput'",
                    [slot])
                return
            } catch {
                guard error.sqlState == SQLState.objectInUse, attempt < Self.attempts else { throw error }
                BackgroundThread.rest(nanoseconds: Self.pauseNanoseconds)
            }
        }
    }

    private static let attempts = 10
    private static let pauseNanoseconds: UInt64 = 200_000_000
}
