import Bytes
import Embedded
import Glibc
import Synchronization
import System

/// NATS servers of a verification run, each a process with a configuration and a store of its own. The verifier ends,
/// kills and stops them, and starts them again on the same ports and stores.
final class VerifyServers: Sendable {
    static let count = 3
    private static let password = "pverify"

    private struct Ports: Sendable {
        var clients: Int
        var routes: Int
        var monitor: Int
    }

    private let program: String
    /// Network in which each server has an address of its own; nil if all are on this machine's.
    private let network: VerifyNetwork?
    private let place: String
    private let ports: [Ports]
    private let processes: Mutex<[ChildProcess?]>

    /// Prepares the servers and starts them. Returns when all of them accept connections.
    init(program: String, network: VerifyNetwork?, place: String) throws {
        self.program = program
        self.network = network
        self.place = place
        var taken: Set<Int> = []
        ports = try (0..<Self.count).map { _ in
            try Ports(
                clients: Self.freePort(&taken), routes: Self.freePort(&taken), monitor: Self.freePort(&taken))
        }
        processes = Mutex(Array(repeating: nil, count: Self.count))
        for index in 0..<Self.count {
            let directory = try DiskDirectory(folder(index), creating: true)
            try directory.replace("nats.conf", with: Array(configuration(index).utf8).rawBytes)
        }
        for index in 0..<Self.count { try start(index) }
        for index in 0..<Self.count { try awaitServer(index) }
    }

    /// Addresses for the hubs' setting `cluster`, with the login.
    var url: String {
        ports.indices.map { "nats://tidewire:\(Self.password)@\(host($0)):\(ports[$0].clients)" }.joined(separator: ",")
    }
    /// Addresses for the hubs' setting `cluster_monitor`.
    var monitors: String {
        ports.indices.map { "http://\(host($0)):\(ports[$0].monitor)" }.joined(separator: ",")
    }

    private func host(_ index: Int) -> String { network?.address(of: .server(index)) ?? "127.0.0.1" }

    func start(_ index: Int) throws {
        let process = try ChildProcess(
            ["setpriv", "--pdeathsig", "KILL", "--"] + (network?.entering(.server(index)) ?? [])
                + [program, "--config", folder(index) + "/nats.conf"],
            output: folder(index) + "/log")
        processes.withLock { $0[index] = process }
    }

    func signal(_ index: Int, _ number: Int32) { processes.withLock { $0[index]?.signal(number) } }

    /// Sends a signal to a server, and waits until its process ends.
    func end(_ index: Int, _ number: Int32) {
        let process = processes.withLock { $0[index] }
        process?.signal(number)
        process?.wait(milliseconds: 60_000)
    }

    /// Asks the leader of the hubs' stream, through a server, to let another server lead.
    func moveLeader(asking index: Int) throws {
        let login = "CONNECT {\"user\":\"tidewire\",\"pass\":\"\(Self.password)\",\"verbose\":false}"
        let request = "PUB $JS.API.STREAM.LEADER.STEPDOWN.\(Self.stream) 0"
        // The server closes nothing before it has read both.
        let script =
            "exec 3<>/dev/tcp/\(host(index))/\(ports[index].clients) && printf '%s\\r\\n%s\\r\\n\\r\\n' \"$1\" \"$2\" >&3; sleep 1"
        _ = try ChildProcess(["bash", "-c", script, "move", login, request], output: "/dev/null").wait()
    }

    /// Stream of the project that a hub has without other settings.
    private static let stream = "TW_realtime-dev"

    func close() {
        for index in 0..<Self.count { end(index, SIGKILL) }
    }

    /// Waits until a server accepts connections of clients.
    private func awaitServer(_ index: Int) throws {
        for _ in 0..<3_000 {
            let log = TextFile.read(folder(index) + "/log") ?? ""
            if log.contains("Server is ready") { return }
            if processes.withLock({ $0[index]?.isRunning == false }) {
                throw BenchFailure(
                    "a NATS server did not start: \(log.split(separator: "\n").last ?? "it said nothing")")
            }
            Pause.milliseconds(10)
        }
        throw BenchFailure("a NATS server was not ready within 30 s", hint: "its log: \(folder(index))/log")
    }

    private func folder(_ index: Int) -> String { "\(place)/nats-\(index + 1)" }

    private func configuration(_ index: Int) -> String {
        let routes = ports.indices.map { "\"nats://\(host($0)):\(ports[$0].routes)\"" }.joined(separator: ", ")
        return """
            server_name: nats\(index + 1)
            listen: "\(host(index)):\(ports[index].clients)"
            http: "\(host(index)):\(ports[index].monitor)"
            jetstream { store_dir: "\(folder(index))/data", sync_interval: always, max_file_store: 4GB }
            cluster { name: verify, listen: "\(host(index)):\(ports[index].routes)", routes: [\(routes)] }
            authorization { user: tidewire, password: \(Self.password) }

            """
    }

    /// Returns a free port below those that the kernel gives to connections, so that it is still free after a restart.
    private static func freePort(_ taken: inout Set<Int>) throws -> Int {
        for _ in 0..<1_000 {
            let port = try FreePort.find(preferring: Int.random(in: 15_000..<32_000))
            if taken.insert(port).inserted { return port }
        }
        throw BenchFailure("there is no free port")
    }
}
