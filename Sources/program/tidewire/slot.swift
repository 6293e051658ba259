import Change
import Console
import Postgres
import Replication
import Settings

/// Command `tidewire slot`: the group of commands about the replication slot.
struct SlotCommand: Command {
    let name = "slot"
    let summary = "Show or drop the replication slot: status, drop."
    let discussion = """
        The replication slot is PostgreSQL's record of how far the hub has read. PostgreSQL keeps its WAL from that \
        position on. These commands ask the database; a hub need not be running.
        """
    let subcommands: [any Command] = [SlotStatusCommand(), SlotDropCommand()]
}

extension OptionGroup {
    fileprivate static let slot = OptionGroup.configuration(of: [Setting(\.databaseURL), Setting(\.slot)])
}

/// Connection for questions about the replication slot that the settings name.
private struct SlotAccess {
    let configuration: Configuration
    let connection: Connection

    init(_ arguments: Arguments, _ terminal: Terminal) throws {
        configuration = try arguments.configuration(terminal)
        connection = try DatabaseAccess.connect(configuration, "slot")
    }

    /// Runs a body that queries the database. Turns PostgreSQL's errors into messages with exit codes and advice.
    func asking<T>(_ body: (Connection) throws -> T) throws -> T {
        do {
            return try body(connection)
        } catch let error as PostgresError {
            let code: ExitCode = error.isConnectionLost ? .unreachable : .notFound
            throw CommandFailure(
                code, error.message, hint: DatabaseAccess.hint(error, who: "with REPLICATION, or a superuser"))
        }
    }

    func status() throws -> SlotStatus? { try asking { try SlotStatus.read(configuration.slot, $0) } }

    /// Returns the status of the slot. Throws if the server has no such slot.
    func required() throws -> SlotStatus {
        if let status = try status() { return status }
        throw CommandFailure(
            .notFound, "there is no slot \(configuration.slot) on this server",
            hint: "`tidewire serve` creates it, unless slot_create is off.")
    }

    /// Returns the number of bytes of WAL between the slot's confirmed position and the server's present one. Nil if
    /// the slot has no confirmed position.
    func lag(_ status: SlotStatus) throws -> Int64? {
        guard let confirmed = status.confirmed else { return nil }
        let rows = try asking { connection in
            try connection.query(
                """
                SELECT pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
                                            ELSE pg_current_wal_lsn() END, $1::pg_lsn)::bigint
                """, [confirmed.description])
        }
        return rows.first?.first.flatMap { $0 }.flatMap { Int64($0) }
    }
}

/// Command `tidewire slot status`: shows the state of the replication slot and the WAL that it keeps.
struct SlotStatusCommand: Command {
    let name = "status"
    let summary = "Show the slot: who uses it, how far it lags, how much WAL it keeps."
    let discussion = """
        Lag is the WAL written since the last position that the hub confirmed; the hub confirms only what is durable \
        in the event log. WAL kept is what the server cannot remove because of the slot. Headroom is what may still be \
        written before max_slot_wal_keep_size makes the server give up the slot (unlimited if that is not set). \
        PostgreSQL 18 also gives up a slot that nobody reads for idle_replication_slot_timeout: the idle limit, if \
        there is one.

        The state is PostgreSQL's wal_status: reserved (all is well), extended (keeps more than max_wal_size), \
        unreserved (will be lost at the next checkpoint, unless the hub catches up), lost (changes are gone; the hub \
        records a gap).

        JSON. One object: name, plugin, database, active, active_pid, confirmed_lsn, restart_lsn, lag_bytes, \
        wal_kept_bytes, headroom_bytes (null: unlimited), limit_bytes (max_slot_wal_keep_size; null: unlimited), \
        idle_limit_seconds (null: none), wal_status, invalidation_reason (from PostgreSQL 17 on, else null).
        """
    let options: [Option] = [.output, .json]
    let optionGroups: [OptionGroup] = [.slot]
    let examples = [
        Example("tidewire slot status", "Is the slot all right?"),
        Example("tidewire slot status --json | jq -e '.lag_bytes < 1e9'", "For a monitor:"),
    ]
    let exitCodes: [ExitCode] = [.notFound, .unreachable]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        let access = try SlotAccess(arguments, terminal)
        let status = try access.required()
        let lag = try access.lag(status)
        if arguments.has(.json) {
            try terminal.print(status.json(lag))
        } else if terminal.form != .table {
            let lines = status.lines(lag)
            var table = TableStream(lines.map { .text($0.0.uppercased()) }, on: terminal)
            try terminal.print(heading: table)
            try terminal.print(table.line(lines.map(\.1)))
        } else {
            for (name, value) in status.lines(lag) {
                try terminal.print(name + String(repeating: " ", count: 12 - name.count) + value)
            }
        }
        return status.isInvalid ? .notFound : .ok
    }
}

extension SlotStatus {
    fileprivate func lines(_ lag: Int64?) -> [(String, String)] {
        let user = activePID.map { "in use by server process \($0)" } ?? "not in use"
        let limit = limitBytes.map { " of \(ByteText.write($0)) (max_slot_wal_keep_size)" } ?? ""
        let headroom =
            walStatus == "lost"
            ? "none: the slot is lost\(limit.isEmpty ? "" : ", because it may keep at most\(limit.dropFirst(3))")"
            : safeBytes.map { ByteText.write(max(0, $0)) + limit } ?? "unlimited (max_slot_wal_keep_size is not set)"
        let idle = idleLimitSeconds.map { [("idle limit", "\($0) s (idle_replication_slot_timeout)")] } ?? []
        return [
            ("slot", name), ("plugin", plugin), ("database", database),
            ("active", isActive ? user : "no: no hub is reading"),
            ("confirmed", confirmed?.description ?? "-"), ("lag", lag.map { ByteText.write(max(0, $0)) } ?? "-"),
            ("WAL kept", retainedBytes.map { ByteText.write(max(0, $0)) } ?? "-"), ("headroom", headroom),
        ] + idle + [("state", stateWords)]
    }

    private var stateWords: String {
        switch walStatus {
        case "reserved": "reserved: all is well"
        case "extended": "extended: it keeps more WAL than max_wal_size"
        case "unreserved": "unreserved: the next checkpoint may remove WAL that the hub has not read yet"
        case "lost":
            "lost: the server has removed WAL that the hub had not read\(invalidation.map { " (\($0))" } ?? ""); the hub records a gap "
                + "when it starts"
        case let other: other ?? "-"
        }
    }

    fileprivate func json(_ lag: Int64?) -> String {
        var line = JSONLine()
        line.add("name", name)
        line.add("plugin", plugin)
        line.add("database", database)
        line.add("active", isActive)
        line.add("active_pid", json: activePID.map { String($0) } ?? "null")
        line.add("confirmed_lsn", confirmed?.description)
        line.add("restart_lsn", restart?.description)
        line.add("lag_bytes", json: lag.map { String($0) } ?? "null")
        line.add("wal_kept_bytes", json: retainedBytes.map { String($0) } ?? "null")
        line.add("headroom_bytes", json: safeBytes.map { String($0) } ?? "null")
        line.add("limit_bytes", json: limitBytes.map { String($0) } ?? "null")
        line.add("idle_limit_seconds", json: idleLimitSeconds.map { String($0) } ?? "null")
        line.add("wal_status", walStatus)
        line.add("invalidation_reason", invalidation)
        return line.text
    }
}

/// Command `tidewire slot drop`: drops the replication slot.
struct SlotDropCommand: Command {
    let name = "drop"
    let summary = "Drop the slot, so that the database no longer keeps WAL for the hub."
    let discussion = """
        For a hub that will not come back: a slot that nobody reads keeps WAL until the disk is full. The event log \
        loses what was committed and not read yet. If a hub starts with this slot name later, it creates a new slot, \
        records a gap and begins a new epoch.

        Without --yes the command only shows what would be lost, and ends with status 2. A slot in use cannot be \
        dropped: stop the hub first.
        """
    let options: [Option] = [.yes, .json]
    let optionGroups: [OptionGroup] = [.slot]
    let examples = [
        Example("tidewire slot drop", "What would be lost?"),
        Example("tidewire slot drop --slot old_hub --yes", "Drop the slot of a hub that is gone:"),
    ]
    let exitCodes: [ExitCode] = [.notFound, .unreachable]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        let access = try SlotAccess(arguments, terminal)
        let status = try access.required()
        let lag = try access.lag(status).map { ByteText.write(max(0, $0)) } ?? "an unknown amount"
        let loss = "\(lag) of WAL after \(status.confirmed?.description ?? "-") would not reach the event log"
        if status.isActive {
            let process = status.activePID.map { "server process \($0)" } ?? "a server process"
            throw CommandFailure(
                .notFound, "slot \(status.name) is in use by \(process)",
                hint: "Stop the hub that reads the slot, then drop the slot.")
        }
        guard arguments.has(.yes) else {
            terminal.complain("this would drop slot \(status.name) of database \(status.database): \(loss)")
            terminal.complain("the slot was not dropped; add --yes to drop it")
            return .usage
        }
        _ = try access.asking { try $0.query("SELECT pg_catalog.pg_drop_replication_slot($1)", [status.name]) }
        if arguments.has(.json) {
            var line = JSONLine()
            line.add("name", status.name)
            line.add("dropped", true)
            line.add("confirmed_lsn", status.confirmed?.description)
            try terminal.print(line.text)
        } else {
            try terminal.print(
                "dropped slot \(status.name); it was confirmed up to \(status.confirmed?.description ?? "-")")
        }
        return .ok
    }
}

extension Option {
    fileprivate static let yes = Option.flag("yes", "Drop it.")
}
