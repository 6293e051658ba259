import Bytes
import Calling
import Change
import Console
import Crypto
import Diagnostics
import EventLog
import History
import Postgres
import Replaying
import Settings
import System

/// Command `tidewire replay`: repeats the changes of a window in another database, or on channels of a hub.
struct ReplayCommand: Command {
    let name = "replay"
    let summary = "Replay a window of the log, masked, into a staging database or into channels of a hub."
    let discussion = """
        Takes a window of the event log, or of a bundle, and makes its changes again elsewhere: at the original speed, \
        faster, or one transaction after the other. Without --go it only shows what would happen.

        TARGETS. --target postgresql://… is a database with the same tables (--map for other names). Each transaction \
        of the window is one transaction there, applied as a whole or not at all: inserts, updates, deletes and \
        truncates in their order, by primary key or replica identity; PostgreSQL computes generated columns. Each one \
        begins with a message in the WAL, with the prefix tidewire.replay, that has offset, epoch, lsn, xid, time and \
        tag of the original: a hub that follows that database has it in its log. Triggers and foreign keys of the \
        target do not act (session_replication_role, which the login needs the right to set, or superuser), because \
        the window already contains what they did; with --triggers they act. If a row is missing, or exists already, \
        the replay stops before that transaction, or skips it (--on-conflict skip).

        --target http://host:4000 sends the changes to channels of a hub, Tidewire or another kind. Each change is a \
        broadcast with its operation as event. The payload has what clients are told of a change (data, ids) and \
        replay, which has offset, epoch, lsn, xid, time and tag of the original. A transaction is one request, \
        accepted as a whole or not at all; more than 100 changes need several requests. If the hub's rate limit is \
        reached (HTTP 429), the replay waits. REPLAY_TOKEN is a token that may broadcast. Use https://host for TLS.

        REFUSED TARGETS. It refuses the database that the log comes from: the same server (system identifier) with the \
        same tables, or any database on that server that the setting database_url does not tell apart from it. It \
        refuses a database with replication slots, because readers of the slots would receive the replay. It refuses \
        the hub that the log comes from, by the log's epoch, and a hub that does not tell the token its epoch. A copy \
        of the source looks like the source, and a staging database with a hub has a slot: to allow such a target, \
        give --allow-target with the name in the refusal, or use the setting replay_targets.

        LEFT OUT are messages (pg_logical_emit_message), rows of realtime.messages unless --table selects them, and \
        changes lost in gaps. If the window begins or ends inside a transaction, only that part of it is replayed.

        AUDIT. Before the first transaction, the command writes a line about the replay into the log's audit file (see \
        'tidewire log audit'; for a bundle it is beside the bundle). If it cannot write the line, it replays nothing. \
        A dry run writes no line.

        \(SelectorHelp.text)

        \(MaskHelp.text)

        STAND-INS. A masked value is replaced by one that its column takes: \(StandIn.description). Other types get \
        NULL; if the column does not take NULL, the command refuses. Equal values have equal stand-ins in all tables, \
        so rows still refer to each other. Short columns and small numbers have few stand-ins, so different values can \
        get the same one. A replay finds rows that were written under another key only with the same --mask-key.

        PACE. The time between two commits is the original one, divided by x of --speed xN. --step asks before each \
        transaction, --pause-on before those with such a row: Enter continues, c continues without asking at each \
        step, q stops. Ctrl-C stops before the next change and rolls the current transaction back; the last line shows \
        the --from with which to continue.

        \(AskingHelp.window) The hub's machine also records the replay.

        JSON. One object a line. kind "table": schema, table, target_schema, target_table, inserts, updates, deletes, \
        truncates, masked (names); kind "plan": from, to (offsets, null for an empty window), transactions, changes, \
        seconds (null if the speed is max), messages and message_rows (left out), gaps, obstacles (texts), go; then \
        with --go kind "conflict": offset, schema, table, reason; and kind "end": end (whole, interrupted, stopped, \
        conflict), transactions, changes, skipped, next (offset, null if it is whole).
        """
    let options: [Option] =
        [
            .target, .channel, .isPrivate, .go, .from, .to, .table, .operation, .condition, .speed, .step, .pauseOn,
            .map, .tag, .onConflict,
            .triggers, .allowTarget, .withoutProgress, .json, .zone, .log, .project,
        ] + Option.masking + [.maskKey] + Option.asking
    let optionGroups: [OptionGroup] = [
        .configuration(of: [
            Setting(\.dataDirectory), Setting(\.maskRules), Setting(\.databaseURL), Setting(\.replayTargets),
        ])
    ]
    let examples = [
        Example(
            "tidewire replay --from -1h --target postgresql://postgres@staging/app",
            "What would be replayed, and how long would it take?"
        ),
        Example(
            "tidewire replay --log incident.bundle --target \"$STAGING\" --speed x10 --tag incident-42 --go",
            "The incident again, ten times as fast:"),
        Example(
            "REPLAY_TOKEN=$STAGING_KEY tidewire replay --from -15m --target http://staging:4000 --channel incident-42 --go",
            "On a channel of another hub, to debug an app:"),
        Example(
            "tidewire replay --from @18442901 --target \"$STAGING\" --pause-on status=paid --speed max --go",
            "At full speed, but ask before each transaction with a paid order:"),
    ]
    let exitCodes = LogAccess.exitCodes

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        let zone = try arguments.zone()
        var request = try arguments.replayRequest(zone)
        // The fetched bundle has only the entries of the window.
        if arguments.value(of: .server) != nil { (request.query.from, request.query.to) = (nil, nil) }
        let settings = try arguments.playerSettings()
        guard let text = arguments.value(of: .target) else {
            throw UsageError("--target is missing: give postgresql://… of a staging database, or http://… of a hub")
        }
        let place = try ReplayPlace(text)
        return try LogAccess.explained {
            let log = try arguments.log(asking: [.from, .to], terminal)
            let names = try NameCheck(log)
            try names.check(request.query)
            try names.check(HistoryQuery(request.query, with: settings.pause))
            let target = try place.open(request, log, arguments, terminal)
            let progress = Progress(terminal, isQuiet: arguments.has(.withoutProgress))
            defer { progress.clear() }
            let plan = try ReplayPlan(request, of: log) { offset in
                progress.note("reading the log: @\(offset)")
                return true
            }
            progress.clear()
            let obstacles = try target.obstacles(plan)
            let text = ReplayText(plan, settings.speed, zone, arguments.has(.json), terminal)
            try text.print(into: place.shown, obstacles, isGo: arguments.has(.go))
            guard obstacles.isEmpty, plan.transactions > 0 else { return .notFound }
            guard arguments.has(.go) else { return .ok }
            try terminal.flush()
            try arguments.auditReplay(text.audited(into: place.shown, tag: request.tag), terminal)
            let report = try play(request, plan, log, target, settings, text, progress, terminal)
            try text.print(report)
            return report.end == .whole && report.skipped == 0 ? .ok : .notFound
        }
    }

    private func play(
        _ request: ReplayRequest, _ plan: ReplayPlan, _ log: HistoryLog, _ target: any CheckedTarget,
        _ settings: Player.Settings, _ text: ReplayText, _ progress: Progress, _ terminal: Terminal
    ) throws -> ReplayReport {
        Signals.noteInterruptions()
        var surroundings = Player.Surroundings()
        surroundings.isInterrupted = { Signals.wasInterrupted }
        surroundings.note = { report in
            let done = Progress.percent(report.changes, of: plan.changes)
            progress.note("replayed \(done), \(report.transactions) of \(plan.transactions) transactions")
        }
        surroundings.ask = { mark, isStep in
            progress.clear()
            let answer = terminal.ask(text.question(mark, isStep))
            switch answer {
            case nil: terminal.complain("\ntidewire: no answer, because standard input has ended")
            case "", "c", "C": return answer == "" ? .next : .goOn
            default: break
            }
            return .stop
        }
        var player = try Player(request, plan, of: log, to: target, settings, surroundings)
        defer { progress.clear() }
        do {
            try player.play()
        } catch let error as PostgresError {
            throw failure(player.report, "\(error)", error.isConnectionLost)
        } catch let error as HubFailure {
            throw failure(player.report, "\(error)", true)
        }
        return player.report
    }

    private func failure(_ report: ReplayReport, _ reason: String, _ isUnreachable: Bool) -> CommandFailure {
        let next = report.next.map { "@\($0)" } ?? "the window's end"
        return CommandFailure(
            isUnreachable ? .unreachable : .notFound,
            "\(report.transactions) transactions were replayed, then the target failed: \(reason)",
            hint: "--from \(next) continues, if the target does not have that transaction.")
    }
}

extension Option {
    fileprivate static let target = Option.value(
        "target", "PLACE",
        "The target: postgresql://… of a database (with the password in PGPASSWORD or PGPASSFILE), or http://host:4000 of a hub (with a token in REPLAY_TOKEN)."
    )
    fileprivate static let channel = Option.value(
        "channel", "NAME", "For a hub: send all changes to this channel, instead of replay:SCHEMA.TABLE for each table."
    )
    fileprivate static let isPrivate = Option.flag("private", "For a hub: use private channels.")
    fileprivate static let go = Option.flag("go", "Do it. Without --go the command only shows what it would do.")
    fileprivate static let speed = Option.value(
        "speed", "SPEED", "original (the default), max, or a multiple of the original speed: x10, x0.5.")
    fileprivate static let step = Option.flag("step", "Ask before each transaction.")
    fileprivate static let pauseOn = Option.value(
        "pause-on", "CONDITION", isRepeatable: true,
        "Ask before a transaction that has a row for which this holds, as in --where. If given several times, all must hold."
    )
    fileprivate static let map = Option.value(
        "map", "TABLE=TABLE", isRepeatable: true, "Write the changes of the first table to the second one.")
    fileprivate static let tag = Option.value(
        "tag", "TEXT", "A name for the replay, in its messages and in the audit file.")
    fileprivate static let onConflict = Option.value(
        "on-conflict", "WHAT",
        "What to do with a transaction that the target does not accept: stop (the default) or skip it.")
    fileprivate static let triggers = Option.flag("triggers", "Let the target's triggers and foreign keys act.")
    fileprivate static let allowTarget = Option.value(
        "allow-target", "NAME", isRepeatable: true, "Write to this target although the command would refuse it.")
}

extension HistoryQuery {
    /// Copies the query, with these conditions on rows instead of its own.
    fileprivate init(_ query: HistoryQuery, with conditions: [RowCondition]) {
        self = query
        self.conditions = conditions
    }
}

extension Arguments {
    /// Returns the replay that the arguments describe: the window, the tag and the renamed tables.
    fileprivate func replayRequest(_ zone: DisplayZone) throws(UsageError) -> ReplayRequest {
        var request = ReplayRequest(try query(zone))
        request.tag = value(of: .tag) ?? ""
        for text in values(of: .map) {
            guard let (from, to) = Self.mapping(text) else {
                throw UsageError("--map \(text): expected two tables, such as app.notes=staging.notes")
            }
            guard request.names.updateValue(to, forKey: from) == nil else {
                throw UsageError("--map \(text): \(from) was mapped before")
            }
        }
        return request
    }

    /// Parses an argument of `--map`, `FROM=TO`. Table names may contain equal signs, so it splits at the first one
    /// that has a table name on both sides.
    private static func mapping(_ text: String) -> (from: TableName, to: TableName)? {
        for sign in text.indices where text[sign] == "=" {
            guard let from = TableName(String(text[..<sign])),
                let to = TableName(String(text[text.index(after: sign)...]))
            else { continue }
            return (from, to)
        }
        return nil
    }

    /// Returns the speed, the pauses and the treatment of conflicts that the arguments ask for.
    fileprivate func playerSettings() throws(UsageError) -> Player.Settings {
        var settings = Player.Settings()
        if let text = value(of: .speed) {
            guard let speed = Pacer.Speed(text) else {
                throw UsageError("--speed \(text): expected original, max or xN, such as x10 or x0.5")
            }
            settings.speed = speed
        }
        settings.steps = has(.step)
        for text in values(of: .pauseOn) {
            guard let condition = RowCondition(text) else {
                throw UsageError("--pause-on \(text): expected \(RowCondition.forms)")
            }
            settings.pause.append(condition)
        }
        switch value(of: .onConflict) {
        case nil, "stop": break
        case "skip": settings.skipsConflicts = true
        case let other?: throw UsageError("--on-conflict \(other): expected stop or skip")
        }
        return settings
    }

    /// True if the operator allows replays into this target even where the command would refuse it: by `--allow-target`
    /// or the setting `replay_targets`.
    fileprivate func isAllowed(_ place: String, _ configuration: Configuration) -> Bool {
        let configured = configuration.replayTargets?.split(separator: ",").map { $0.filter { $0 != " " } } ?? []
        return values(of: .allowTarget).contains(place) || configured.contains(place)
    }
}

/// Target of a replay that can check the plan before the command writes.
protocol CheckedTarget: ReplayTarget {
    /// Returns the reasons why this target does not accept the plan; empty if it accepts it.
    func obstacles(_ plan: ReplayPlan) throws -> [String]
}

extension DatabaseTarget: CheckedTarget {}

extension HubTarget: CheckedTarget {
    func obstacles(_ plan: ReplayPlan) -> [String] { [] }
}

/// Target of a replay as `--target` gives it: a database or a hub.
private enum ReplayPlace {
    case database(ConnectionString)
    case hub(HubAddress)

    init(_ text: String) throws(UsageError) {
        if let hub = HubAddress(text) {
            self = .hub(hub)
        } else if !text.hasPrefix("http:"), !text.hasPrefix("https:"), let database = ConnectionString(text) {
            self = .database(database)
        } else {
            throw UsageError(
                "--target: expected postgresql://user@host:5432/database, or https://host for channels of a hub")
        }
    }

    /// Address of the target without its secrets.
    var shown: String {
        switch self {
        case .database(let database): "\(database)"
        case .hub(let hub): "\(hub)"
        }
    }

    /// Opens the target. Throws if it must not be written to.
    func open(
        _ request: ReplayRequest, _ log: HistoryLog, _ arguments: Arguments, _ terminal: Terminal
    ) throws -> any CheckedTarget {
        let configuration = try arguments.configuration(terminal)
        switch self {
        case .database(let database):
            guard arguments.value(of: .channel) == nil, !arguments.has(.isPrivate) else {
                throw UsageError("--channel and --private are for a hub, --target http://…")
            }
            return try open(database, request, log, arguments, configuration)
        case .hub(let hub): return try open(hub, request, log, arguments, configuration, terminal)
        }
    }

    // MARK: Hubs

    private func open(
        _ hub: HubAddress, _ request: ReplayRequest, _ log: HistoryLog, _ arguments: Arguments,
        _ configuration: Configuration, _ terminal: Terminal
    ) throws -> HubTarget {
        guard let token = terminal.surroundings.environment["REPLAY_TOKEN"], Self.isToken(token) else {
            throw UsageError("a hub needs a token: set REPLAY_TOKEN in the environment")
        }
        var settings = HubTarget.Settings(hub, token: token)
        settings.channel = arguments.value(of: .channel)
        settings.isPrivate = arguments.has(.isPrivate)
        settings.certificates = arguments.value(of: .certificates)
        let target: HubTarget
        do {
            target = try HubTarget(settings, request) { Signals.wasInterrupted }
        } catch let error as TLSConfigurationError {
            throw UsageError("--\(Option.certificates.name) \(error)")
        }
        let epoch: String?
        do {
            epoch = try target.epoch()
        } catch let failure as HubFailure {
            throw CommandFailure(.unreachable, failure.description, hint: LogAccess.adviceAboutHub)
        }
        guard !arguments.isAllowed(hub.place, configuration) else { return target }
        let own = Set(try log.segments().map { Hex.text($0.header.epoch) })
        if let epoch, !own.contains(epoch) { return target }
        throw CommandFailure(
            .notFound,
            epoch == nil
                ? "\(hub.place) does not tell this token which log it has, and may be the hub that this log comes from"
                : "\(hub.place) is the hub that this log comes from",
            hint: "If the replay misleads nobody there, --allow-target \(hub.place) allows it.")
    }

    /// True if the text can be sent as a token in a request header: not empty, and only visible ASCII characters.
    private static func isToken(_ text: String) -> Bool {
        !text.isEmpty && text.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f }
    }

    // MARK: Databases

    private func open(
        _ database: ConnectionString, _ request: ReplayRequest, _ log: HistoryLog, _ arguments: Arguments,
        _ configuration: Configuration
    ) throws -> DatabaseTarget {
        let connection = try DatabaseAccess.connect(
            ConnectionTarget(database.revealed), shown: shown, "replay")
        return try DatabaseAccess.asking {
            let identity = try TargetIdentity(
                connection, against: log, sourceDatabase: try sourceDatabase(configuration))
            if !arguments.isAllowed(identity.place, configuration), let doubt = identity.doubts.first {
                throw refusal(doubt, identity)
            }
            let target = DatabaseTarget(connection, request) { Signals.wasInterrupted }
            if !arguments.has(.triggers) { try withoutTriggers(target) }
            return target
        }
    }

    /// Returns the name of the database that the settings name as the log's source; nil if they name none.
    private func sourceDatabase(_ configuration: Configuration) throws -> String? {
        guard let source = configuration.databaseURL else { return nil }
        let parameters = try ConnectionTarget(source.revealed).parameters()
        return (parameters.last { $0.0 == "dbname" } ?? parameters.last { $0.0 == "user" })?.1
    }

    /// Returns the error that refuses a database which may be the log's own, or which others follow.
    private func refusal(_ doubt: TargetIdentity.Doubt, _ identity: TargetIdentity) -> CommandFailure {
        let allow = "--allow-target \(identity.place)"
        switch doubt {
        case .source:
            return CommandFailure(
                .notFound, "\(identity.place) is the database that this log comes from, or a copy of it",
                hint: "If it is a copy that has its server's identity, \(allow) allows it.")
        case .sourceServer:
            return CommandFailure(
                .notFound,
                "\(identity.place) is on the server that this log comes from, and may be the database itself",
                hint: "Give --database-url with the log's own database, to tell them apart; or \(allow) allows it.")
        case .unknownServer:
            return CommandFailure(
                .notFound, "\(identity.place) does not tell this login which server it is (pg_control_system)",
                hint: "If it is not the database that the log comes from, \(allow) allows it.")
        case .followed(let slots):
            return CommandFailure(
                .notFound,
                "\(identity.place) has replication slots (\(slots.map(SQLName.quoted).joined(separator: ", "))): their readers "
                    + "would receive the replay",
                hint: "If that misleads nobody, \(allow) allows it.")
        }
    }

    /// Disables triggers and foreign keys in the target's session. Throws with advice if the login may not do that.
    private func withoutTriggers(_ target: DatabaseTarget) throws {
        do throws(PostgresError) {
            try target.withoutTriggers()
        } catch {
            guard error.sqlState == SQLState.insufficientPrivilege else { throw error }
            throw CommandFailure(
                .notFound, "the login of --target may not disable triggers (session_replication_role)",
                hint:
                    "Give a login that may, or --triggers: then triggers act in addition to what they did in the window."
            )
        }
    }
}
