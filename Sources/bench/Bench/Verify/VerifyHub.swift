import Embedded
import Glibc
import Synchronization
import System

/// Hub as operators run it, which ends and starts again, always on the same port and data.
final class VerifyHub: Sendable {
    static let slot = "verify"

    let port: UInt16
    private let database: VerifyDatabase
    private let place: String
    let disk: SmallDisk
    private let current = Mutex<(process: HubProcess, starts: Int)?>(nil)

    init(_ database: VerifyDatabase, place: String) throws {
        self.database = database
        self.place = place
        port = UInt16(try FreePort.find())
        disk = try SmallDisk(place + "/hub")
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
                ], log: place + "/hub-\(starts).log")
            current = (process, starts)
        }
    }

    func signal(_ number: Int32) { current.withLock { $0?.process.signal(number) } }

    /// Sends a signal to the hub and waits for its end.
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

/// Directory that can run full: a tmpfs, which only root may mount. Without root, the directory is an ordinary one.
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

    /// Shrinks the disk to its content. If a file grows meanwhile, tries again.
    func fill() {
        for _ in 0..<100 {
            let script = "mount -o remount,size=$(df --output=used -k '\(path)' | tail -n 1)k '\(path)'"
            if Self.run(["sh", "-c", script]) { return }
        }
    }

    func empty() { _ = Self.run(["mount", "-o", "remount,size=\(Self.size)", path]) }

    func close() { if isSmall { _ = Self.run(["umount", "--lazy", path]) } }

    private static func run(_ words: [String]) -> Bool {
        (try? ChildProcess(words, output: "/dev/null").wait()) == .exited(0)
    }
}
