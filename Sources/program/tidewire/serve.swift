import Console
import Diagnostics
import EventLog
import History
import Ingest
import Postgres
import Server
import Settings

/// Command `tidewire serve`: runs the hub.
struct ServeCommand: Command {
    let name = "serve"
    let summary = "Follow a database, keep its changes in the event log, and serve realtime clients."
    let discussion = """
        Connects to PostgreSQL, reads every change of the publication's tables from a logical replication slot, and \
        appends it to the event log in the data directory. The hub confirms a change to PostgreSQL only when the \
        change is durable in the log. If the hub or the database is killed at any moment, the log loses nothing and \
        repeats nothing.

        The hub creates the slot if it is missing (slot_create), and the publication if its login may \
        (publication_create). With database_prepare it first creates what 'tidewire db apply' would create, as far as \
        the login may, and logs a line for each object. When the database cannot be reached, or refuses, the hub says \
        why, retries with growing waits, and continues where it stopped.

        Sometimes the hub cannot continue the history: the slot was dropped, the server removed the slot's WAL, or the \
        database was restored. Then it records a gap in the log and begins a new epoch, so that no loss is silent.

        Supabase clients connect to ws://HOST:PORT/realtime/v1 (setting listen; wss with tls_certificate and tls_key). \
        They send a token signed with jwt_secret or a key of jwks, or an opaque key of api_keys. They receive the \
        postgres_changes that they subscribe to. /healthcheck tells whether the hub is alive, /ready whether changes \
        stream, and /metrics has all metrics.

        SIGHUP makes the hub read keys, certificates and mask rules again. SIGINT or SIGTERM stops it: the hub disconnects its \
        clients over drain_time, then flushes the log and confirms all complete transactions. A second signal \
        disconnects all clients at once. The hub writes log lines to standard error, one for each event. 'tidewire \
        tail' shows the changes.
        """
    let options: [Option] = [.echo]
    let optionGroups: [OptionGroup] = [.configuration]
    let examples = [
        Example("tidewire serve --database-url postgres://tidewire:secret@db/app", "Follow a database:"),
        Example("TIDEWIRE_LOG_FORMAT=json tidewire serve --config /etc/tidewire/tidewire.conf", "In production:"),
    ]
    let exitCodes: [ExitCode] = [.unreachable, .damaged]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        let configuration = try arguments.configuration(terminal)
        Log.shared.configure(level: configuration.logLevel, format: configuration.logFormat)
        Hub.blockSignals()
        let hub = try ServeCommand.explained {
            try Hub(configuration, echoes: arguments.has(.echo), maskRulesCheck: MaskRules.check) {
                (target) throws(PostgresError) in
                try DatabasePreparer(target).prepare()
            }
        }
        while Hub.waitForSignal(reloading: hub) == nil {}
        hub.stop()
        return .ok
    }

    /// Runs a body that starts the hub. Turns the errors that prevent the start into messages with exit codes for
    /// scripts.
    static func explained<T>(_ body: () throws -> T) throws -> T {
        do {
            return try body()
        } catch let error as EventLogError {
            if case .damaged = error { throw CommandFailure(.damaged, "\(error)", hint: error.advice) }
            throw CommandFailure(.notFound, "\(error)", hint: error.advice)
        } catch let error as HubError {
            throw CommandFailure(error.isUnreachable ? .unreachable : .usage, "\(error)", hint: error.advice)
        } catch let error as MaskRulesRefusal {
            throw CommandFailure(
                .usage, "\(error)", hint: "Correct the file of mask_rules; docs/commands.md shows its form.")
        }
    }
}

extension Option {
    fileprivate static let echo = Option.flag(
        "echo", "Also serve /echo, which sends every message back. Use it only to test WebSocket conformance.")
}
