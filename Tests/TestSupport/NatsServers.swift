import Calling
import Embedded
import Foundation
import Glibc
import Synchronization
import System

/// NATS servers of one test, each a process with a configuration file, a store directory and a log file of its own.
///
/// They are the real server (`Tests/Tools/nats` installs it). Servers that still run end with the object, and when this
/// process ends. Their directory is removed when the object is released.
public final class NatsServers: Sendable {
    /// Configuration of the servers.
    public struct Options: Sendable {
        /// Number of servers. More than one form a cluster.
        public var count = 3
        public var hasJetStream = true
        /// Value of `sync_interval`; nil leaves the server's default, which is lazy.
        public var syncInterval: String? = "always"
        public var login: Login = .none
        public var tls: TLS?
        /// Names of the servers; nil for s1, s2, …
        public var names: [String]?
        /// Additional lines in the configuration of every server.
        public var lines = ""

        public init(count: Int = 3) { self.count = count }
    }

    /// Login that the servers ask clients for.
    public enum Login: Sendable {
        case none
        case user(String, password: String)
        case token(String)
        /// Public nkeys of the users that may connect.
        case nkeys([String])
    }

    /// Files for TLS between clients and servers. Routes between the servers and the monitoring port stay plain.
    public struct TLS: Sendable {
        public var certificate: String
        public var key: String
        /// Certificates that sign those of clients; nil if clients need no certificate.
        public var clientAuthority: String?

        public init(certificate: String, key: String, clientAuthority: String? = nil) {
            self.certificate = certificate
            self.key = key
            self.clientAuthority = clientAuthority
        }
    }

    /// Error with the end of the log of each server.
    public struct Failure: Error, CustomStringConvertible {
        public let description: String
    }

    private struct Server {
        var name: String
        var ports: Ports
        var process: ChildProcess?
    }

    private struct Ports {
        var clients: Int
        var routes: Int
        var monitor: Int
    }

    public let options: Options
    /// Directory with everything that belongs to the servers.
    public let directory: String
    private let servers: Mutex<[Server]>

    /// Path of the server's program. It is installed once if it is missing.
    public static let program = Result { try installed() }

    /// Prepares the servers and starts all of them. Returns when they take clients and, with JetStream, have a leader.
    public init(_ options: Options = Options()) throws {
        self.options = options
        directory = TemporaryDirectory.make("nats")
        servers = Mutex([])
        // Another process may take a port between the search for it and the server's start.
        for attempt in 1...5 {
            let prepared = try prepared()
            servers.withLock { $0 = prepared }
            do {
                try startAll()
                return
            } catch {
                guard attempt < 5, logs.contains("address already in use") else { throw error }
                stopAll()
                try FileManager.default.removeItem(atPath: directory)
                try Directories.make(directory, mode: 0o711)
            }
        }
    }

    deinit {
        for server in servers.withLock({ $0 }) { server.process?.signal(SIGKILL) }
        for server in servers.withLock({ $0 }) { server.process?.wait(milliseconds: 10_000) }
        try? FileManager.default.removeItem(atPath: directory)
    }

    // MARK: Addresses

    public var count: Int { options.count }
    public var names: [String] { servers.withLock { $0.map(\.name) } }

    /// URL of each server for clients, with the user and the password or the token, if the servers ask for one.
    public var clientURLs: [String] {
        let scheme = options.tls == nil ? "nats" : "tls"
        let login =
            switch options.login {
            case .none, .nkeys: ""
            case .user(let name, let password): "\(name):\(password)@"
            case .token(let token): "\(token)@"
            }
        return ports.map { "\(scheme)://\(login)127.0.0.1:\($0.clients)" }
    }

    /// URLs of all servers, separated by commas, as the setting `cluster` takes them.
    public var url: String { clientURLs.joined(separator: ",") }

    public var clientPorts: [Int] { ports.map(\.clients) }
    public var routePorts: [Int] { ports.map(\.routes) }

    /// URL of each server's monitoring port.
    public var monitorURLs: [String] { ports.map { "http://127.0.0.1:\($0.monitor)" } }

    /// URLs of all monitoring ports, separated by commas, as the setting `cluster_monitor` takes them.
    public var monitorURL: String { monitorURLs.joined(separator: ",") }

    /// Directory in which a server stores its streams.
    public func store(_ index: Int) -> String { "\(directory)/\(index + 1)/store" }
    /// Configuration file of a server.
    public func configuration(_ index: Int) -> String { "\(directory)/\(index + 1)/nats.conf" }

    private var ports: [Ports] { servers.withLock { $0.map(\.ports) } }

    // MARK: Life

    public func isRunning(_ index: Int) -> Bool { process(index)?.isRunning ?? false }
    public func processID(_ index: Int) -> pid_t? { process(index).flatMap { $0.isRunning ? $0.processID : nil } }

    /// Ends a server at once, as `kill -9` does.
    public func kill(_ index: Int) { end(index, SIGKILL) }

    /// Lets a server end in order: it hands its leaderships over first.
    public func terminate(_ index: Int) { end(index, SIGTERM) }

    /// Stops a server where it is. Its sockets stay open.
    public func pause(_ index: Int) { process(index)?.signal(SIGSTOP) }

    /// Continues a paused server.
    public func resume(_ index: Int) { process(index)?.signal(SIGCONT) }

    /// Starts a server that has ended, on its store and ports. Does not wait until it is ready.
    public func start(_ index: Int) throws {
        precondition(!isRunning(index), "server \(index) runs already")
        // The server must not outlive the tests, however they end.
        let process = try ChildProcess(
            ["/usr/bin/setpriv", "--pdeathsig", "KILL", Self.program.get(), "--config", configuration(index)],
            output: log(index))
        servers.withLock { $0[index].process = process }
    }

    /// Ends a server in order and starts it again.
    public func restart(_ index: Int) throws {
        terminate(index)
        try start(index)
    }

    /// Starts every server that does not run, and waits until all are ready.
    public func startAll() throws {
        for index in 0..<count where !isRunning(index) { try start(index) }
        try waitUntilReady()
    }

    /// Kills every server.
    public func stopAll() {
        for index in 0..<count { process(index)?.signal(SIGKILL) }
        for index in 0..<count { kill(index) }
    }

    private func end(_ index: Int, _ signal: Int32) {
        guard let process = process(index) else { return }
        process.signal(signal)
        // A paused server takes no other signal.
        if signal != SIGKILL { process.signal(SIGCONT) }
        if process.wait(milliseconds: 60_000) == nil {
            process.signal(SIGKILL)
            process.wait(milliseconds: 10_000)
        }
        servers.withLock { $0[index].process = nil }
    }

    private func process(_ index: Int) -> ChildProcess? { servers.withLock { $0[index].process } }

    // MARK: State

    /// Waits until every running server is healthy and, with JetStream, knows the leader of the cluster.
    public func waitUntilReady() throws {
        for _ in 0..<600 {
            let running = (0..<count).filter { isRunning($0) }
            if running.count < count, let ended = (0..<count).first(where: { process($0)?.isRunning == false }) {
                throw Failure(description: "\(names[ended]) ended: \(logs)")
            }
            if running.allSatisfy({ isReady($0) }) { return }
            BackgroundThread.rest(nanoseconds: 100_000_000)
        }
        throw Failure(description: "the NATS servers were not ready within a minute: \(logs)")
    }

    private func isReady(_ index: Int) -> Bool {
        guard answer(index, "healthz")?["status"] as? String == "ok" else { return false }
        return !options.hasJetStream || count == 1 || metaLeader(asSeenBy: index) != nil
    }

    /// Index of the server that leads JetStream's cluster, as any running server reports it; nil if there is none, or
    /// one server alone.
    public var metaLeader: Int? {
        for index in 0..<count where isRunning(index) {
            if let name = metaLeader(asSeenBy: index) { return names.firstIndex(of: name) }
        }
        return nil
    }

    /// Index of the server that leads a stream's group; nil while there is none.
    public func leader(ofStream stream: String) -> Int? {
        for index in 0..<count where isRunning(index) {
            let accounts = answer(index, "jsz?streams=true")?["account_details"] as? [[String: Any]] ?? []
            for account in accounts {
                for detail in account["stream_detail"] as? [[String: Any]] ?? []
                where detail["name"] as? String == stream {
                    let leader = (detail["cluster"] as? [String: Any])?["leader"] as? String
                    // A server alone leads its streams without an election.
                    if let found = count == 1 ? 0 : leader.flatMap({ names.firstIndex(of: $0) }) { return found }
                }
            }
        }
        return nil
    }

    private func metaLeader(asSeenBy index: Int) -> String? {
        let cluster = answer(index, "jsz")?["meta_cluster"] as? [String: Any]
        return (cluster?["leader"] as? String).flatMap { $0.isEmpty ? nil : $0 }
    }

    /// Answer of a server's monitoring port, for example of `varz` or `jsz?streams=true`; nil if it does not answer.
    public func page(_ index: Int, _ path: String) -> [UInt8]? {
        guard let address = HubAddress(monitorURLs[index])?.root,
            let request = try? HubRequest(address, token: nil, waiting: 2_000), let answer = try? request.get(path),
            answer.status == 200
        else { return nil }
        return answer.body
    }

    private func answer(_ index: Int, _ path: String) -> [String: Any]? {
        page(index, path).flatMap { try? JSONSerialization.jsonObject(with: Data($0)) as? [String: Any] }
    }

    /// Last lines of the log of each server.
    public var logs: String {
        (0..<count).map { index in
            let text = (try? String(contentsOfFile: log(index), encoding: .utf8)) ?? ""
            return "\(index + 1): " + text.split(separator: "\n").suffix(5).joined(separator: "\n   ")
        }.joined(separator: "\n")
    }

    private func log(_ index: Int) -> String { "\(directory)/\(index + 1)/log" }

    // MARK: Preparation

    private func prepared() throws -> [Server] {
        var taken: Set<Int> = []
        let all = try (0..<count).map { index in
            let ports = try Ports(
                clients: Self.freePort(&taken), routes: Self.freePort(&taken), monitor: Self.freePort(&taken))
            return Server(name: options.names?[index] ?? "s\(index + 1)", ports: ports)
        }
        for (index, server) in all.enumerated() {
            try Directories.make("\(directory)/\(index + 1)", mode: 0o700)
            try text(server, index, all).write(toFile: configuration(index), atomically: false, encoding: .utf8)
        }
        return all
    }

    /// Returns a port that no connection takes as its own while the server is down: one below the kernel's range.
    private static func freePort(_ taken: inout Set<Int>) throws -> Int {
        for _ in 0..<1_000 {
            let port = try FreePort.find(preferring: Int.random(in: 15_000..<32_000))
            if taken.insert(port).inserted { return port }
        }
        throw Failure(description: "there is no free port")
    }

    private func text(_ server: Server, _ index: Int, _ all: [Server]) -> String {
        var text = """
            server_name: "\(server.name)"
            listen: "127.0.0.1:\(server.ports.clients)"
            http: "127.0.0.1:\(server.ports.monitor)"

            """
        if options.hasJetStream {
            let interval = options.syncInterval.map { ", sync_interval: \($0)" } ?? ""
            text += "jetstream { store_dir: \"\(store(index))\"\(interval) }\n"
        }
        if count > 1 {
            let routes = all.map { "\"nats://127.0.0.1:\($0.ports.routes)\"" }.joined(separator: ", ")
            text += "cluster { name: tests, listen: \"127.0.0.1:\(server.ports.routes)\", routes: [\(routes)] }\n"
        }
        switch options.login {
        case .none: break
        case .user(let name, let password):
            text += "authorization { user: \"\(name)\", password: \"\(password)\" }\n"
        case .token(let token): text += "authorization { token: \"\(token)\" }\n"
        case .nkeys(let keys):
            text += "authorization { users: [\(keys.map { "{ nkey: \($0) }" }.joined(separator: ", "))] }\n"
        }
        if let tls = options.tls {
            let authority = tls.clientAuthority.map { ", ca_file: \"\($0)\", verify: true" } ?? ""
            text += "tls { cert_file: \"\(tls.certificate)\", key_file: \"\(tls.key)\"\(authority) }\n"
        }
        return text + options.lines + "\n"
    }

    private static func installed() throws -> String {
        let script = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .appendingPathComponent("Tools/nats").path
        let output = TemporaryDirectory.make("nats-program") + "/output"
        let ending = try ChildProcess([script], output: output).wait()
        let said = try String(contentsOfFile: output, encoding: .utf8)
        guard ending == .exited(0), let path = said.split(whereSeparator: \.isNewline).last else {
            throw Failure(description: "Tests/Tools/nats: \(said)")
        }
        return String(path)
    }
}
