import Console
import Diagnostics
import EventLog
import Postgres
import Server
import Settings

/// Command `tidewire serve`.
struct ServeCommand: Command {
    let name = "serve"
    let summary = "Follow a database, keep its changes, serve realtime clients."
    let discussion = """
        Connects to PostgreSQL, takes every change of the publication's tables from a logical replication slot and \
        appends it to the event log in the data directory. PostgreSQL is told that a change arrived only when it is \
        durable here, so killing the hub or the database at any moment loses nothing and repeats nothing in the log.

        The slot is created if it is missing (slot_create), and so is the publication if the role may \
        (publication_create). With database_prepare it first makes what 'tidewire db apply' would make, as far as the \
        login may, and says it line by line. When the database cannot be reached, or refuses, the hub says why, keeps trying with \
        growing waits, and goes on where it stopped.

        If history cannot go on - the slot was dropped, the server let go of its WAL, the database was restored - a gap \
        is recorded in the log and a new epoch begins: loss is never silent.

        Supabase clients connect to ws://HOST:PORT/realtime/v1 (listen; wss with tls_certificate and tls_key) with a token \
        signed by jwt_secret or a key of jwks, or an opaque key of api_keys, and receive the postgres_changes they \
        subscribe to. /healthcheck says that the hub lives, /ready that changes stream, /metrics everything in numbers.

        SIGHUP reads keys and certificates again. Ends on SIGINT or SIGTERM after sending the clients away over drain_time \
        and flushing and confirming what is whole; a second one has them sent away at once. One line an event is written to standard error; read the changes with 'tidewire tail'.
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
            try Hub(configuration, echoes: arguments.has(.echo)) { (target) throws(PostgresError) in
                try DatabasePreparer(target).prepare()
            }
        }
        while Hub.waitForSignal(reloading: hub) == nil {}
        hub.stop()
        return .ok
    }

    /// Runs the body. Turns errors that keep the hub from starting into messages with exit codes for scripts.
    static func explained<T>(_ body: () throws -> T) throws -> T {
        do {
            return try body()
        } catch let error as EventLogError {
            if case .damaged = error { throw CommandFailure(.damaged, "\(error)") }
            throw CommandFailure(.notFound, "\(error)")
        } catch let error as HubError {
            throw CommandFailure(.usage, "\(error)")
        }
    }
}

extension Option {
    fileprivate static let echo = Option.flag(
        "echo", "Also serve /echo, which sends every message back: for WebSocket conformance runs only.")
}
