import Diagnostics
import Postgres
import System

/// Replication slot with its database.
struct SlotPlace: Sendable {
    let slot: String
    let target: ConnectionTarget

    init(slot: String, _ target: ConnectionTarget) { (self.slot, self.target) = (slot, target) }

    /// True if both may be the same slot. Server addresses are not compared, because one server can have several, and a
    /// slot in use must not be dropped.
    func mayBe(_ other: SlotPlace) -> Bool {
        guard slot == other.slot else { return false }
        guard let own = databaseName, let theirs = other.databaseName else { return true }
        return own == theirs
    }

    /// True if both are surely the same slot: the same name on the same server. Slots belong to a server, so the
    /// databases may differ.
    func isSame(as other: SlotPlace) -> Bool { slot == other.slot && server != nil && server == other.server }

    /// Host and port of the address; nil if libpq cannot read it.
    private var server: [String]? {
        guard let parameters = try? target.parameters() else { return nil }
        func last(_ name: String) -> String? { parameters.last { $0.0 == name }?.1 }
        return [(last("hostaddr") ?? last("host") ?? "").lowercased(), last("port") ?? "5432"]
    }

    /// Name of the database that libpq would use; nil if libpq cannot read the address.
    private var databaseName: String? {
        guard let parameters = try? target.parameters() else { return nil }
        func last(_ name: String) -> String? { parameters.last { $0.0 == name }?.1 }
        return last("dbname") ?? last("user") ?? ""
    }

    /// Drops the slot, if it belongs to this database and the hub's output plugin. If the former reader has not yet
    /// ended, tries again for a moment.
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
