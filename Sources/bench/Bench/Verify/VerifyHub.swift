import Bytes
import Embedded
import Glibc
import Synchronization
import System

/// Hub of a verification run, in its own process, as operators run it. The verifier ends it and starts it again, on the
/// same port and data.
final class VerifyHub: Sendable {
    static let slot = "verify"

    let port: UInt16
    private let database: VerifyDatabase
    private let place: String
    let disk: SmallDisk
    let clock: SteppedClock
    private let current = Mutex<(process: HubProcess, starts: Int)?>(nil)

    init(_ database: VerifyDatabase, place: String) throws {
        self.database = database
        self.place = place
        port = UInt16(try FreePort.find())
        disk = try SmallDisk(place + "/hub")
        clock = try SteppedClock(in: place)
    }

    func start() throws {
        try current.withLock { current in
            let starts = (current?.starts ?? 0) + 1
            let process = try HubProcess(
                [
                    "--slot", Self.slot, "--data-dir", disk.path + "/data", "--listen", "127.0.0.1:\(port)",
                    "--log-format", "text",
                ],
                environment: [
                    "TIDEWIRE_DATABASE_URL": database.hubURL, "TIDEWIRE_POLICY_DATABASE_URL": database.policyURL,
                    "TIDEWIRE_JWT_SECRET": database.secret,
                ].merging(clock.environment) { mine, _ in mine }, log: place + "/hub-\(starts).log")
            current = (process, starts)
        }
    }

    /// Waits until the hub's first process receives the replication stream and has read the catalog. If clients joined
    /// earlier, the hub might tell them of a loss.
    func awaitReadiness() throws {
        for _ in 0..<6000 {
            let log = TextFile.read(place + "/hub-1.log") ?? ""
            if log.contains(" info streaming "), log.contains(" info read the catalog") { return }
            Pause.milliseconds(10)
        }
        throw BenchFailure("the hub did not begin to stream within a minute", hint: "its log: \(place)/hub-1.log")
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

    private static let name = "clock"

    private let directory: DiskDirectory
    private let path: String
    let canStep: Bool

    init(in place: String) throws {
        directory = try DiskDirectory(place)
        path = place + "/" + Self.name
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
        try directory.replace(Self.name, with: offset.rawBytes)
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
