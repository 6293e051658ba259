import Diagnostics
import Glibc
import Postgres
import System

/// Private PostgreSQL server with its own directory, a free port on 127.0.0.1, an unprivileged user, and the settings
/// for logical replication. The server ends when the process that started it ends. It can be started again on the same
/// data.
///
/// It is not for production data: `tidewire dev`, the benchmarks and the tests use it.
public final class PrivateCluster: @unchecked Sendable {
    // Guarded by use: one thread starts and stops it; `process` is itself Sendable.
    public struct Options: Sendable {
        /// Additional settings of the server, each `name=value`.
        public var settings: [String] = []
        /// True if the server may lose data when the machine crashes. This makes it faster, for tests.
        public var isThrowaway = false

        public init() {}
    }

    public let directory: String
    public let binaries: PostgresBinaries
    public private(set) var port: Int = 0
    private let options: Options
    private let owner: ServerUser
    private var password = ""
    private var process: ChildProcess?

    private var data: String { directory + "/data" }
    public var logFile: String { directory + "/postgres.log" }

    /// Prepares the directory, which is created if missing, and the cluster in it.
    public init(directory: String, options: Options = Options()) throws {
        binaries = try PostgresBinaries.find()
        owner = try ServerUser.find()
        self.directory = directory
        self.options = options
        try owner.prepare(directory)
        if !SmallFile.exists(data + "/PG_VERSION") { try initialise() }
        password = try SmallFile.read(directory + "/password")
    }

    deinit { process?.signal(SIGINT) }

    // MARK: Addresses

    /// Returns a URL for a user. It has no password if the user has none.
    public func url(user: String = "postgres", password: String? = nil, database: String = "postgres") -> String {
        let secret = user == "postgres" ? self.password : password
        return "postgresql://\(user)\(secret.map { ":" + $0 } ?? "")@127.0.0.1:\(port)/\(database)"
    }

    public func target(database: String = "postgres") -> ConnectionTarget { ConnectionTarget(url(database: database)) }

    public func connect(database: String = "postgres") throws(PostgresError) -> Connection {
        try Connection(target(database: database), applicationName: "tidewire setup")
    }

    // MARK: Life

    public var isRunning: Bool { process?.isRunning ?? false }

    /// Starts the server and waits until it accepts connections.
    public func start() throws {
        precondition(!isRunning, "the cluster runs already")
        stopLeftOver()
        port = try FreePort.find(preferring: (try? SmallFile.read(directory + "/port")).flatMap { Int($0) })
        try owner.write(directory + "/port", String(port))
        // After the server was killed, its old processes keep the shared memory until they notice the end of the
        // postmaster.
        for attempt in 1...20 {
            let process = try ChildProcess(
                owner.running(
                    [binaries.path("postgres"), "-D", data] + settings.flatMap { ["-c", $0] }, endsWithParent: true),
                output: logFile)
            self.process = process
            if try takesConnections(process) { return }
            guard attempt < 20, lastLogLines(30).contains("still in use") else { break }
            usleep(250_000)
        }
        throw EmbeddedError("PostgreSQL ended while starting: \(lastLogLines(1))", hint: "see \(logFile)")
    }

    private var settings: [String] {
        var settings = [
            "port=\(port)", "listen_addresses=127.0.0.1", "unix_socket_directories=", "wal_level=logical",
            "max_wal_senders=20", "max_replication_slots=20", "max_connections=100", "shared_buffers=128MB",
            "log_min_messages=warning", "cluster_name=tidewire", "timezone=UTC", "log_timezone=UTC",
        ]
        if options.isThrowaway {
            settings += ["fsync=off", "full_page_writes=off", "autovacuum=off", "jit=off"]
        }
        return settings + options.settings
    }

    /// Waits until the server accepts connections; returns false if the server ends.
    private func takesConnections(_ process: ChildProcess) throws -> Bool {
        // Recovery after a crash may take some time. A server that fails ends by itself.
        for _ in 0..<1200 {
            if process.wait(milliseconds: 50) != nil { return false }
            if (try? connect()) != nil { return true }
        }
        throw EmbeddedError("PostgreSQL did not take connections within a minute", hint: "see \(logFile)")
    }

    /// Ends all sessions and stops the server cleanly.
    public func stop() {
        end(with: SIGINT)
    }

    /// Kills the server. As in a power failure, it flushes nothing, and sessions get no message.
    public func kill() {
        // The other processes of the server notice the end of the postmaster and end, too.
        end(with: SIGKILL)
    }

    private func end(with signal: Int32) {
        guard let process else { return }
        process.signal(signal)
        if process.wait(milliseconds: 60_000) == nil {
            process.signal(SIGQUIT)
            process.wait(milliseconds: 10_000)
        }
        self.process = nil
    }

    /// Stops a server of an earlier run that is still running, because it occupies the data directory.
    private func stopLeftOver() {
        guard SmallFile.exists(data + "/postmaster.pid") else { return }
        let command = [binaries.path("pg_ctl"), "stop", "-D", data, "-m", "immediate", "-w", "-t", "20", "-s"]
        _ = try? ChildProcess(owner.running(command), output: "/dev/null").wait()
    }

    private func initialise() throws {
        var generator = SystemRandomNumberGenerator()
        let secret = String(generator.next() as UInt64, radix: 36) + String(generator.next() as UInt64, radix: 36)
        try owner.write(directory + "/password", secret)
        let command = [
            binaries.path("initdb"), "-D", data, "--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8",
            "--auth-local=scram-sha-256", "--auth-host=scram-sha-256", "--pwfile=\(directory)/password", "--no-sync",
        ]
        guard try ChildProcess(owner.running(command), output: logFile).wait() == .exited(0) else {
            throw EmbeddedError("initdb failed: \(lastLogLines(1))", hint: "see \(logFile)")
        }
    }

    private func lastLogLines(_ count: Int) -> String {
        let log = (try? SmallFile.read(logFile)) ?? ""
        let lines = log.split(separator: "\n").suffix(count)
        return lines.isEmpty ? "it said nothing" : lines.joined(separator: "; ")
    }
}
