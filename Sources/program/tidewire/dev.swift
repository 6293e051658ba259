import Bytes
import Console
import Crypto
import Diagnostics
import Embedded
import EventLog
import Foundation
import Postgres
import Server
import Settings
import System

/// Command `tidewire dev`: runs a hub with a private PostgreSQL and demo data.
struct DevCommand: Command {
    let name = "dev"
    let summary = "Run the hub with its own PostgreSQL and a demo."
    let discussion = """
        Creates a private PostgreSQL in the data directory with the installed PostgreSQL programs, and prepares it as \
        a Supabase database (roles, auth functions, publication, five example applications, a demo table). Then \
        simulates a little activity in it, and serves it like 'tidewire serve'. Prints how to connect, and ready-made \
        tokens for an anonymous visitor, two users and a member of staff.

        PostgreSQL listens only on 127.0.0.1, on a free port that it keeps between runs, and runs as an unprivileged \
        user. Ctrl-C stops everything in order; the next run continues with the same data. To start from scratch, \
        delete the directory.

        Without --data-dir the directory is dev/ below the usual data directory, so that the command never touches a \
        production log.

        INCIDENT. With --incident, two people's phones and a laptop connect, and something goes wrong for them: a user \
        loses access to a listing, sockets are cut, a migration hides rows, the hub is restarted. The command prints \
        each step with its time and transaction, and then questions about the incident, with the commands that answer \
        them from the log. The directory is then incident/. A second run only prints the questions.

        JSON. One object with the same values; with --incident one a line: kind step (time, xid, text), heard (device, \
        topic, op, table, row: what each device received, in order), question (text, command), and last place \
        (data_dir, migration, database_url).
        """
    let options: [Option] = [.interval, .incident, .quiet, .json]
    // The command has its own database, so it takes no option for another.
    let optionGroups: [OptionGroup] = [
        .configuration(of: Setting.all.filter { $0 != Setting(\.databaseURL) && $0 != Setting(\.policyDatabaseURL) })
    ]
    let examples = [
        Example("tidewire dev", "Start:"),
        Example(
            "tidewire tail --follow --data-dir /var/lib/tidewire/dev", "In another terminal, watch the changes arrive:"),
        Example("tidewire dev --activity 0 --data-dir /tmp/mine", "Without simulated activity, in another directory:"),
        Example("tidewire dev --incident", "An incident to investigate:"),
    ]
    let exitCodes: [ExitCode] = [.damaged]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        let interval = try activityInterval(arguments)
        let base = try arguments.configuration(terminal)
        Log.shared.configure(level: base.logLevel, format: base.logFormat)
        Hub.blockSignals()
        let usual = base.dataDirectory + (arguments.has(.incident) ? "/incident" : "/dev")
        let chosen = base.source(of: Setting(\.dataDirectory)) == .builtIn ? usual : base.dataDirectory
        return try ServeCommand.explained {
            try explained { try live(in: Directories.absolute(chosen), base, interval, arguments, terminal) }
        }
    }

    private func activityInterval(_ arguments: Arguments) throws -> Int {
        guard let text = arguments.value(of: .interval) else { return arguments.has(.incident) ? 0 : 800 }
        guard !arguments.has(.incident) else {
            throw UsageError("--activity and --incident exclude each other: an incident runs without other activity")
        }
        guard let interval = Int(text), (0...3_600_000).contains(interval) else {
            throw UsageError(
                "--activity \(text): expected milliseconds between two steps, up to 3600000, or 0 for none")
        }
        return interval
    }

    /// Starts the database, the hub and the demonstration, waits for the end, and stops them in reverse order.
    private func live(
        in directory: String, _ base: Configuration, _ interval: Int, _ arguments: Arguments, _ terminal: Terminal
    ) throws -> ExitCode {
        // PostgreSQL's user must be able to enter its own subdirectory. The log and secrets beside it stay closed.
        try Directories.make(directory, mode: 0o711)
        let lock = try takeLock(directory)
        terminal.complain("Starting a private PostgreSQL in \(directory)/postgres …")
        let cluster = try PrivateCluster(directory: directory + "/postgres")
        try cluster.start()
        defer { cluster.stop() }
        let database = try DemoDatabase(in: cluster)
        let secret = try base.jwtSecret?.revealed ?? PersistentSecret.read(directory + "/jwt_secret")
        let configuration = try arguments.configuration(
            terminal,
            decided: [
                SettingOverride(Setting(\.databaseURL), database.hubURL, from: .command("tidewire dev")),
                SettingOverride(Setting(\.policyDatabaseURL), database.policyURL, from: .command("tidewire dev")),
                SettingOverride(Setting(\.dataDirectory), directory, from: .command("tidewire dev")),
                SettingOverride(Setting(\.jwtSecret), secret, from: .command("tidewire dev")),
            ]
                + (base.source(of: Setting(\.console)) == .builtIn
                    ? [SettingOverride(Setting(\.console), "loopback", from: .command("tidewire dev"))] : [])
                + (arguments.has(.incident) ? DevHub.hurried : []))
        if arguments.has(.incident) { try database.prepareIncident() }
        let hub = try DevHub(configuration)
        defer { hub.stop() }
        let activity = interval == 0 ? nil : try DemoActivity(cluster.target(), everyMilliseconds: interval)
        defer { activity?.stop() }
        if arguments.has(.incident) {
            try IncidentShow(
                directory: directory, database: database, secret: secret, hub: hub, terminal: terminal,
                isJSON: arguments.has(.json)
            ).run()
        } else if !arguments.has(.quiet) {
            let scheme = configuration.tls == nil ? "ws" : "wss"
            let url = "\(scheme)://\(configuration.listen.host):\(hub.hub.port)/realtime/v1"
            try DevCard(url: url, console: hub.console, directory: directory, database: database, secret: secret)
                .print(on: terminal, asJSON: arguments.has(.json))
        }
        while Hub.waitForSignal(reloading: hub.hub, milliseconds: 500) == nil {
            guard cluster.isRunning else {
                throw CommandFailure(
                    .notFound, "the private PostgreSQL stopped unexpectedly", hint: "see \(cluster.logFile)")
            }
        }
        terminal.complain("Stopping …")
        return withExtendedLifetime(lock) { .ok }
    }

    /// Locks the data directory of the command. Two processes on one directory would stop each other's database.
    private func takeLock(_ directory: String) throws -> any StorageLock {
        switch try DiskDirectory(directory).lock("DEV.LOCK") {
        case .taken(let lock): return lock
        case .heldElsewhere(let processID):
            let who = processID.map { "process \($0)" } ?? "another process"
            throw CommandFailure(
                .notFound, "\(directory) is in use by \(who)",
                hint: "stop that 'tidewire dev', or choose another --data-dir")
        }
    }

    private func explained<T>(_ body: () throws -> T) throws -> T {
        do {
            return try body()
        } catch let error as EmbeddedError {
            throw CommandFailure(.notFound, error.message, hint: error.hint)
        } catch let error as PostgresError {
            throw CommandFailure(.unreachable, "\(error)", hint: error.advice)
        } catch let error as SystemError {
            throw CommandFailure(.notFound, "\(error)", hint: error.advice)
        }
    }
}

extension Option {
    fileprivate static let interval = Option.value(
        "activity", "MS", "Milliseconds between two steps of simulated activity, 0 for none. Default: 800.")
    fileprivate static let incident = Option.flag(
        "incident", "Run an incident, then print questions about it that the log answers.")
    fileprivate static let quiet = Option.flag("quiet", "Do not print how to connect.")
}

/// Addresses, keys and passwords of the running demonstration, printed for a person or a script.
private struct DevCard {
    let url: String
    /// Address of the web console; nil if the hub does not serve it.
    let console: String?
    let directory: String
    let database: DemoDatabase
    let secret: String

    func print(on terminal: Terminal, asJSON: Bool) throws {
        if asJSON {
            var line = JSONLine()
            for row in rows { line.add(row.key, row.value) }
            try terminal.print(line.text)
        } else {
            try terminal.print(text)
        }
        try terminal.flush()
    }

    private typealias Row = (key: String, label: String, value: String)

    private var rows: [Row] {
        var rows: [Row] = [("url", "Clients connect to", url)]
        if let console { rows.append(("console_url", "Web console", console)) }
        rows += [
            ("database_url", "Database (superuser)", database.superuserURL),
            ("hub_url", "Database (as the hub)", database.hubURL),
            ("policy_url", "Database (policies)", database.policyURL),
            ("data_dir", "Data directory", directory),
            ("jwt_secret", "JWT secret", secret),
            ("anon", "Token: anon", token(role: "anon", person: nil)),
        ]
        for person in DemoDatabase.people {
            rows.append((person.name, "Token: \(person.name)", token(role: "authenticated", person: person)))
        }
        rows.append(("staff", "Token: staff", token(role: "authenticated", person: DemoDatabase.staff, isOfStaff: true)))
        return rows
    }

    private var text: String {
        let lines = rows.map { "  " + $0.label.padding(toLength: 23, withPad: " ", startingAt: 0) + $0.value }
        return """

            Tidewire is running with a PostgreSQL of its own.

            \(lines.joined(separator: "\n"))

              Watch the changes      tidewire tail --follow --data-dir \(directory)
              Make one yourself      psql '\(database.superuserURL)' -c "select demo.step()"

            Any Supabase client can subscribe to schema demo, table orders. Row Level Security decides who hears of what: ana
            and ben of their own orders, the staff of all, and an anonymous visitor of none, which the client is told.
            Ctrl-C stops everything; the data stays.

            """
    }

    /// Returns a client's token that is valid for a year, like a project's keys. It has a `session_id`, by which the
    /// hub recognises a returning client.
    private func token(role: String, person: DemoDatabase.Person?, isOfStaff: Bool = false) -> String {
        let now = Clock.unixMicroseconds() / 1_000_000
        var claims = JSONLine()
        claims.add("iss", "tidewire-dev")
        claims.add("role", role)
        if let person {
            claims.add("aud", "authenticated")
            claims.add("sub", person.id)
            claims.add("email", "\(person.name)@example.com")
        }
        if isOfStaff { claims.add("app_metadata", json: #"{"staff":true}"#) }
        claims.add("session_id", UUID().uuidString.lowercased())
        claims.add("iat", now)
        claims.add("exp", now + 365 * 86_400)
        return JWT.sign(claims: Array(claims.text.utf8).span, secret: Array(secret.utf8).span)
    }
}
