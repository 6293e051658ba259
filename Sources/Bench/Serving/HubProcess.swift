import Glibc
import System

/// The hub as operators run it, in a process of its own.
final class HubProcess {
    let port: UInt16
    private let process: ChildProcess

    /// Returns when it listens.
    init(_ words: [String], environment: [String: String], log: String) throws {
        // Another program starts it, for which `/proc/self/exe` would be itself.
        guard let program = Self.program else { throw BenchFailure("this program does not know where it is") }
        // Stopped when we die: a hub does not notice that nobody needs it any more.
        let command = ["setpriv", "--pdeathsig", "TERM", "--", program, "serve"] + words
        process = try ChildProcess(command, output: log, environment: environment)
        for _ in 0..<3000 {
            if let port = Self.port(in: TextFile.read(log) ?? "") {
                self.port = port
                return
            }
            if process.wait(milliseconds: 10) != nil { break }
        }
        let last = (TextFile.read(log) ?? "").split(separator: "\n").last ?? "it said nothing"
        process.signal(SIGKILL)
        throw BenchFailure("the hub did not start: \(last)")
    }

    deinit { stop() }

    private static func port(in log: String) -> UInt16? {
        guard let line = log.split(separator: "\n").first(where: { $0.contains("listening") }),
            let colon = line.firstRange(of: "127.0.0.1:")
        else { return nil }
        return UInt16(line[colon.upperBound...].prefix { $0.isNumber })
    }

    private static var program: String? {
        // SAFETY: the kernel writes at most as many bytes as there are, and only those are read.
        unsafe withUnsafeTemporaryAllocation(byteCount: Int(PATH_MAX), alignment: 1) { room in
            guard let start = room.baseAddress else { return nil }
            let count = unsafe readlink(
                "/proc/self/exe", start.assumingMemoryBound(to: CChar.self), room.count)
            return unsafe count > 0 ? String(decoding: room.prefix(count), as: UTF8.self) : nil
        }
    }

    var processID: Int32 { process.processID }

    func use() throws -> ProcessUse { try ProcessUse(processID) }

    func stop() {
        guard process.isRunning else { return }
        process.signal(SIGTERM)
        if process.wait(milliseconds: 20_000) == nil { process.signal(SIGKILL) }
    }
}
