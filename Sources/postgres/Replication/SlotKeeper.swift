import Change
import Diagnostics
import Postgres
import System

/// Settings of the replication stream: the database, the names, and the objects that the hub may create.
public struct ReplicationSettings: Sendable {
    public var target: ConnectionTarget
    public var publication: String
    public var slot: String
    public var mayCreateSlot: Bool
    public var mayCreatePublication: Bool
    /// Preparation of the database before the hub checks anything in it; nil for none.
    public var preparation: DatabasePreparation?
    /// True if PostgreSQL may stream large transactions before they commit.
    public var streaming: Bool
    /// Publication of the tables that decide memberships, and the state of it in the stream.
    public var coverage: StreamCoverage
    /// Publication of database messages, and the state of it in the stream.
    public var messages: StreamCoverage
    /// Reachability of the database, shared by all threads that connect to it.
    public var reachability: Reachability
    /// Settings of the connection that streams, each as `name=value`, besides the usual ones.
    public var streamOptions: [String] = []
    /// Pause of the stream, which an operator can set.
    public var pause = StreamPause()
    /// Metrics of the project to which the database belongs.
    public var metrics = ProjectMetrics()

    public init(
        target: ConnectionTarget, publication: String = "supabase_realtime", slot: String = "tidewire",
        mayCreateSlot: Bool = true, mayCreatePublication: Bool = true, streaming: Bool = true,
        coverage: StreamCoverage = StreamCoverage(),
        messages: StreamCoverage = StreamCoverage(publication: StreamCoverage.messages),
        reachability: Reachability = Reachability()
    ) {
        self.reachability = reachability
        self.target = target
        self.publication = publication
        self.slot = slot
        self.mayCreateSlot = mayCreateSlot
        self.mayCreatePublication = mayCreatePublication
        self.streaming = streaming
        self.coverage = coverage
        self.messages = messages
    }

    /// Publications in the stream in addition to the clients' publication.
    var ownPublications: [StreamCoverage] { [coverage, messages] }
}

/// State of a slot in the server's catalog.
public struct SlotStatus: Sendable {
    public var name: String
    public var plugin: String
    public var database: String
    public var isActive: Bool
    public var activePID: Int?
    public var confirmed: LSN?
    public var restart: LSN?
    public var walStatus: String?
    /// Number of bytes of WAL that the server retains for this slot.
    public var retainedBytes: Int64?
    /// Number of bytes that the server can still write before it invalidates the slot (`max_slot_wal_keep_size`); nil
    /// without a limit.
    public var safeBytes: Int64?
    /// `max_slot_wal_keep_size`; nil without a limit.
    public var limitBytes: Int64?
    /// `idle_replication_slot_timeout`, of PostgreSQL 18; nil without one.
    public var idleLimitSeconds: Int64?
    /// Reason for which the server invalidated the slot (since PostgreSQL 17); nil if the server gives none.
    public var invalidation: String?

    public var isInvalid: Bool { walStatus == "lost" || invalidation != nil }

    /// Returns the number of bytes of WAL that the server has written beyond a position.
    public func lagBytes(behind position: LSN) -> Int64 {
        guard let restart, let retainedBytes else { return 0 }
        return Int64(clamping: restart.rawValue) + retainedBytes - Int64(clamping: position.rawValue)
    }

    /// Returns the state of the slot with this name; nil if there is none.
    public static func read(_ name: String, _ connection: Connection) throws(PostgresError) -> SlotStatus? {
        let rows = try connection.query(
            """
            SELECT plugin, database, active, active_pid, confirmed_flush_lsn, restart_lsn, wal_status,
                   pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
                                        ELSE pg_current_wal_lsn() END, restart_lsn)::bigint,
                   safe_wal_size,
                   (SELECT nullif(setting, '-1')::bigint * 1048576 FROM pg_catalog.pg_settings
                    WHERE name = 'max_slot_wal_keep_size'),
                   (SELECT nullif(setting, '0')::bigint * CASE unit WHEN 'min' THEN 60 ELSE 1 END
                    FROM pg_catalog.pg_settings WHERE name = 'idle_replication_slot_timeout'),
                   to_jsonb(slot) ->> 'invalidation_reason'
            FROM pg_catalog.pg_replication_slots slot WHERE slot_name = $1
            """, [name])
        guard let row = rows.first else { return nil }
        return SlotStatus(
            name: name, plugin: row[0] ?? "", database: row[1] ?? "", isActive: row[2] == "t",
            activePID: row[3].flatMap { Int($0) }, confirmed: row[4].flatMap { LSN($0) },
            restart: row[5].flatMap { LSN($0) }, walStatus: row[6], retainedBytes: row[7].flatMap { Int64($0) },
            safeBytes: row[8].flatMap { Int64($0) }, limitBytes: row[9].flatMap { Int64($0) },
            idleLimitSeconds: row[10].flatMap { Int64($0) }, invalidation: row[11])
    }
}

/// Keeper of publication and slot, used before streaming. It finds them, or creates them if that is allowed. Otherwise
/// its error names the SQL that would create them.
struct SlotKeeper {
    let settings: ReplicationSettings
    let catalog: Connection
    let interrupt: Wake

    func checkServer() throws {
        let level = try catalog.query("SHOW wal_level").first?.first ?? nil
        guard level == "logical" else {
            throw StreamFailure(
                .walLevel, "wal_level is \(level ?? "unknown"), but logical replication needs logical",
                hint: "ALTER SYSTEM SET wal_level = logical; then restart PostgreSQL")
        }
    }

    var publicationExists: Bool {
        get throws {
            try !catalog.query("SELECT 1 FROM pg_catalog.pg_publication WHERE pubname = $1", [settings.publication])
                .isEmpty
        }
    }

    func ensurePublication() throws {
        if try publicationExists { return }
        let sql = "CREATE PUBLICATION \(Quoted.identifier(settings.publication))"
        guard settings.mayCreatePublication else { throw missingPublication(sql, nil) }
        do throws(PostgresError) {
            try catalog.execute(sql)
            Log.shared.info(
                "created the publication; it has no tables until you add them",
                [.publication(settings.publication), .hint("\(alter) ADD TABLE …")])
        } catch {
            // Another session has created the publication in the meantime.
            if error.sqlState == SQLState.duplicateObject { return }
            if error.sqlState == SQLState.insufficientPrivilege { throw missingPublication(sql, error.message) }
            throw error
        }
    }

    private var alter: String { "ALTER PUBLICATION \(Quoted.identifier(settings.publication))" }

    private func missingPublication(_ sql: String, _ why: String?) -> StreamFailure {
        let suffix = why.map { " and cannot be created: \($0)" } ?? ""
        return StreamFailure(
            .publicationMissing, "publication \(settings.publication) does not exist" + suffix,
            hint: "as the database's owner: \(sql); \(alter) ADD TABLE …;")
    }

    func slotState() throws -> ServerState.Slot? {
        guard let slot = try SlotStatus.read(settings.slot, catalog) else { return nil }
        guard slot.plugin == "pgoutput" else {
            throw StreamFailure(
                .other,
                "slot \(slot.name) uses the plugin \(slot.plugin.isEmpty ? "of physical replication" : slot.plugin)",
                hint: "set another slot name: this one belongs to another program")
        }
        let here = try catalog.query("SELECT current_database()").first?.first ?? nil
        guard slot.database == here else {
            throw StreamFailure(
                .other, "slot \(slot.name) belongs to database \(slot.database)",
                hint: "set another slot name for this database")
        }
        if slot.isInvalid { return ServerState.Slot(confirmed: slot.confirmed ?? .zero, isInvalid: true) }
        guard let confirmed = slot.confirmed else {
            let maker = slot.activePID.map { " by server process \($0)" } ?? ""
            throw StreamFailure(
                .slotBusy, "slot \(slot.name) is still being created\(maker)",
                hint: "the server completes it when the transactions that were running have ended: see pg_stat_activity"
            )
        }
        return ServerState.Slot(confirmed: confirmed, isInvalid: false, user: slot.activePID)
    }

    func databaseNumber() throws -> UInt32 {
        let rows = try catalog.query("SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()")
        guard let number = rows.first?.first.flatMap({ $0 }).flatMap({ UInt32($0) }) else {
            throw StreamFailure(.protocolError, "the server did not say which database this is")
        }
        return number
    }

    /// Returns the current OID of the clients' publication; nil if it does not exist.
    func published() throws(PostgresError) -> UInt32? { try catalog.publicationNumber(settings.publication) }

    func drop() throws {
        try catalog.query("SELECT pg_catalog.pg_drop_replication_slot($1)", [settings.slot])
        Log.shared.warning("dropped the replication slot", [.slot(settings.slot)])
    }

    /// Creates the slot. Returns the position from which the slot has every change.
    func create(_ replication: Connection) throws -> LSN {
        guard settings.mayCreateSlot else {
            throw StreamFailure(
                .slotMissing, "slot \(settings.slot) does not exist and slot_create is off",
                hint: "SELECT pg_create_logical_replication_slot(\(Quoted.literal(settings.slot)), 'pgoutput');")
        }
        // The call below can take long, because PostgreSQL waits until all running transactions have ended.
        Log.shared.info(
            "creating the replication slot; PostgreSQL waits until the transactions that run now have ended",
            [.slot(settings.slot)])
        let rows = try replication.execute(
            "CREATE_REPLICATION_SLOT \(Quoted.identifier(settings.slot)) LOGICAL pgoutput NOEXPORT_SNAPSHOT",
            interrupt: interrupt)
        guard let column = rows.columns.firstIndex(of: "consistent_point"),
            let text = rows.first?[column], let point = LSN(text)
        else { throw StreamFailure(.protocolError, "the server made a slot and did not say where it begins") }
        Log.shared.info("created the replication slot", [.slot(settings.slot), .lsn(point)])
        return point
    }

    /// Advances the slot to the end of the WAL, without decoding the WAL in between. Returns the new position.
    func advanceToEnd() throws -> LSN {
        let rows = try catalog.query(
            "SELECT end_lsn FROM pg_catalog.pg_replication_slot_advance($1, pg_catalog.pg_current_wal_lsn())",
            [settings.slot])
        guard let text = rows.first?[0], let lsn = LSN(text) else {
            throw StreamFailure(.protocolError, "the server moved the slot and did not say where to")
        }
        return lsn
    }

    func primaryKey(of oid: UInt32) throws(PostgresError) -> Set<String> {
        let rows = try catalog.query(
            """
            SELECT a.attname FROM pg_catalog.pg_index i
            JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid
             AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
            WHERE i.indrelid = $1::oid AND i.indisprimary
            """, [String(oid)])
        return Set(rows.values.compactMap { $0[0] })
    }
}
