import Bytes
import Embedded
import Glibc
import Synchronization
import System

/// Hub of a verification run, in its own process, as operators run it. The verifier ends it and starts it again, on the
/// same port and data.
final class VerifyHub: Sendable {
    static let slot = "verify"

    /// Place of a hub in a cluster.
    struct Membership: Sendable {
        var servers: VerifyServers
        var network: VerifyNetwork?
        /// Index of the hub among the cluster's.
        var index: Int
    }

    let port: UInt16
    private let database: VerifyDatabase
    private let place: String
    /// Name of the hub's files: `hub`, or its name as a node of a cluster.
    private let name: String
    /// Cluster that the hub is a node of; nil for a hub on its own.
    private let membership: Membership?
    let disk: SmallDisk
    let clock: SteppedClock
    private let current = Mutex<(process: HubProcess, starts: Int)?>(nil)

    init(_ database: VerifyDatabase, place: String, membership: Membership? = nil) throws {
        self.database = database
        self.place = place
        name = membership.map { "hub\($0.index + 1)" } ?? "hub"
        self.membership = membership
        port = UInt16(try FreePort.find(preferring: membership == nil ? nil : Int.random(in: 10_000..<15_000)))
        disk = try SmallDisk("\(place)/\(name)")
        clock = try SteppedClock(in: place, named: "\(name).clock")
    }

    /// Address on which the hub listens.
    var host: String { membership.flatMap { $0.network?.address(of: .hub($0.index)) } ?? "127.0.0.1" }

    func start() throws {
        try current.withLock { current in
            let starts = (current?.starts ?? 0) + 1
            var environment = [
                "TIDEWIRE_DATABASE_URL": database.hubURL, "TIDEWIRE_POLICY_DATABASE_URL": database.policyURL,
                "TIDEWIRE_JWT_SECRET": database.secret,
            ]
            if let membership {
                environment["TIDEWIRE_CLUSTER"] = membership.servers.url
                environment["TIDEWIRE_CLUSTER_MONITOR"] = membership.servers.monitors
                environment["TIDEWIRE_CLUSTER_NODE"] = name
                environment["TIDEWIRE_RETENTION_SIZE"] = "1GB"
            }
            let process = try HubProcess(
                [
                    "--slot", Self.slot, "--data-dir", disk.path + "/data", "--listen", "\(host):\(port)",
                    "--log-format", "text",
                ], environment: environment.merging(clock.environment) { mine, _ in mine },
                log: "\(place)/\(name)-\(starts).log", seconds: membership == nil ? 30 : Self.startSeconds,
                entering: membership.flatMap { $0.network?.entering(.hub($0.index)) } ?? [])
            current = (process, starts)
        }
    }

    /// Maximum seconds for a node's start: it waits a minute for servers that elect a leader.
    private static let startSeconds = 90

    /// Waits until the hub's first process receives changes and has read the catalog. If clients joined earlier, the hub
    /// might tell them of a loss.
    func awaitReadiness() throws {
        // In a cluster, one hub receives the replication stream, and all follow the cluster's stream.
        let receiving = membership == nil ? " info streaming " : " info follows the cluster's stream "
        let path = "\(place)/\(name)-1.log"
        for _ in 0..<6000 {
            let log = TextFile.read(path) ?? ""
            if log.contains(receiving), log.contains(" info read the catalog") { return }
            Pause.milliseconds(10)
        }
        throw BenchFailure("the hub did not begin to stream within a minute", hint: "its log: \(path)")
    }

    func signal(_ number: Int32) { current.withLock { $0?.process.signal(number) } }

    /// Sends a signal to the hub and waits up to a minute until its process ends.
    func end(_ number: Int32) {
        current.withLock { current in
            current?.process.signal(number)
            current?.process.wait(milliseconds: 60_000)
        }
    }

    var isRunning: Bool { current.withLock { $0?.process.isRunning ?? false } }

    func close() {
        current.withLock { current in
            current?.process.signal(SIGCONT)
            current?.process.stop()
            current = nil
        }
        disk.close()
    }
}

/// Wall clock that only the hub sees (by libfaketime). A fault sets it forward or back. Without libfaketime, the hub
/// uses the machine's clock, which no fault changes.
final class SteppedClock: Sendable {
    private static let library = "/usr/lib/\(machine)-linux-gnu/faketime/libfaketimeMT.so.1"
    #if arch(arm64)
        private static let machine = "aarch64"
    #else
        private static let machine = "x86_64"
    #endif

    private let directory: DiskDirectory
    private let name: String
    private let path: String
    let canStep: Bool

    init(in place: String, named name: String) throws {
        directory = try DiskDirectory(place)
        self.name = name
        path = "\(place)/\(name)"
        // SAFETY: Swift passes a C string that lives for the call.
        canStep = unsafe access(Self.library, R_OK) == 0
        try step(seconds: 0)
    }

    /// Environment variables that make a program use this clock.
    var environment: [String: String] {
        guard canStep else { return [:] }
        return [
            "LD_PRELOAD": Self.library, "FAKETIME_TIMESTAMP_FILE": path, "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1",
        ]
    }

    /// Sets the clock this many seconds ahead of the machine's clock. A negative number sets it behind.
    func step(seconds: Int) throws {
        let offset = Array("\(seconds < 0 ? "" : "+")\(seconds)s\n".utf8)
        // The file is replaced as a whole, because the hub may read it at any moment.
        try directory.replace(name, with: offset.rawBytes)
    }
}

/// Directory for the hub's data that can become full: a tmpfs, which only root may mount. Without root, it is an
/// ordinary directory.
final class SmallDisk: Sendable {
    private static let size = "8g"

    let path: String
    let isSmall: Bool

    init(_ path: String) throws {
        self.path = path
        try Directories.make(path)
        isSmall =
            geteuid() == 0 && Self.run(["mount", "-t", "tmpfs", "-o", "size=\(Self.size),mode=0755", "tmpfs", path])
    }

    /// Shrinks the disk to the size of its content, so that it is full. If a file grows during the attempt, tries
    /// again.
    func fill() {
        for _ in 0..<100 {
            let script = "mount -o remount,size=$(df --output=used -k '\(path)' | tail -n 1)k '\(path)'"
            if Self.run(["sh", "-c", script]) { return }
        }
    }

    /// Restores the full size of the disk, so that it has room again.
    func empty() { _ = Self.run(["mount", "-o", "remount,size=\(Self.size)", path]) }

    func close() { if isSmall { _ = Self.run(["umount", "--lazy", path]) } }

    private static func run(_ words: [String]) -> Bool {
        (try? ChildProcess(words, output: "/dev/null").wait()) == .exited(0)
    }
}
