import Change
import EventLog
import History
import Postgres

/// Facts about a target database that are found before a replay writes to it: whether it is the log's source, and which
/// slots follow it.
public struct TargetIdentity: Sendable {
    public enum Doubt: Sendable, Equatable {
        /// The database is the log's source, or a copy that cannot be distinguished from it.
        case source
        /// The database is on the source's server, and it is not certain that it is another database.
        case sourceServer
        /// The login has no right to ask which server this is.
        case unknownServer
        /// Replication slots follow the database, so clients of other programs would receive the replayed changes.
        case followed(slots: [String])
    }

    /// Address of the database, as `host:port/database`. The user types this text to confirm the target.
    public let place: String
    public let database: String
    public let doubts: [Doubt]

    /// Examines a database.
    ///
    /// - Parameter sourceDatabase: name of the log's source database; nil if unknown.
    public init(
        _ connection: Connection, against log: HistoryLog, sourceDatabase: String?
    ) throws {
        place = connection.place.split(separator: "@").last.map(String.init) ?? connection.place
        database = try connection.query("SELECT current_database()").first?[0] ?? ""
        var doubts: [Doubt] = []
        let sources = Set(try log.segments().map(\.header.source))
        let server = try? connection.query("SELECT system_identifier FROM pg_control_system()").first?[0]
        if let server, let identifier = UInt64(server) {
            if sources.contains(identifier) {
                if try Self.hasSameTables(connection, log) {
                    doubts.append(.source)
                } else if sourceDatabase == nil || sourceDatabase == database {
                    doubts.append(.sourceServer)
                }
            }
        } else {
            doubts.append(.unknownServer)
        }
        let slots = try connection.query(
            "SELECT slot_name FROM pg_replication_slots WHERE database = current_database() ORDER BY slot_name")
        if !slots.isEmpty { doubts.append(.followed(slots: slots.values.compactMap { $0[0] })) }
        self.doubts = doubts
    }

    /// True if a table of the database has the same oid and name as a table of the log. A server assigns each oid once,
    /// so such a database is the log's source or was copied from it.
    private static func hasSameTables(_ connection: Connection, _ log: HistoryLog) throws -> Bool {
        let tables = try log.relations().map(\.relation)
        guard !tables.isEmpty else { return false }
        let wanted = tables.map { table in
            "(\(table.oid), \(SQLText.literal(table.schema)), \(SQLText.literal(table.name)))"
        }
        let found = try connection.query(
            """
            SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE (c.oid, n.nspname, c.relname) IN (\(Set(wanted).sorted().joined(separator: ", "))) LIMIT 1
            """)
        return !found.isEmpty
    }
}
