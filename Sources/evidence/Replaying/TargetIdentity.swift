import Change
import EventLog
import History
import Postgres

/// What is known of a database before anything is written to it: whether it is where the log comes from, and who follows it.
public struct TargetIdentity: Sendable {
    public enum Doubt: Sendable, Equatable {
        /// It is the source, or a copy of it that cannot be told from it.
        case source
        /// It is on the source's server, and nothing says that it is another database.
        case sourceServer
        /// Nobody may ask which server it is.
        case unknownServer
        /// Somebody follows its changes, and would be told what is replayed.
        case followed(slots: [String])
    }

    /// `host:port/database`, by which it is allowed.
    public let place: String
    public let database: String
    public let doubts: [Doubt]

    /// - Parameter sourceDatabase: the name of the log's own database, where it is known.
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

    /// Numbers of tables are given once on a server: who has a table of the log under the same one is its source, or made as
    /// a copy of it.
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
