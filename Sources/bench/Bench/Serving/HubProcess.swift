import Glibc
import System

/// Hub in its own process, as operators run it.
final class HubProcess {
    let port: UInt16
    private let process: ChildProcess

    /// Starts the hub and returns when it listens. Throws if it does not within the seconds.
    ///
    /// - Parameter entering: words of a command that runs the hub in a network namespace; none for this process's own.
    init(
        _ words: [String], environment: [String: String], log: String, seconds: Int = 30, entering: [String] = []
    ) throws {
        let program = try Self.program
        // The kernel terminates the hub when this program ends for any reason. The hub itself would not notice.
        let command = ["setpriv", "--pdeathsig", "TERM", "--"] + entering + [program, "serve"] + words
        process = try ChildProcess(command, output: log, environment: environment)
        for _ in 0..<seconds * 100 {
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

    private static var program: String {
        get throws {
            // SAFETY: Swift passes a C string that lives for the call.
            guard let path = OwnProgram.beside("tidewire"), unsafe access(path, X_OK) == 0 else {
                throw BenchFailure(
                    "the hub, tidewire, is not beside this program",
                    hint: "build it there with `swift build -c release --product tidewire`")
            }
            return path
        }
    }

    /// Returns the port that the hub reports in its log; nil if it does not listen yet.
    private static func port(in log: String) -> UInt16? {
        guard let line = log.split(separator: "\n").first(where: { $0.contains("listening") }),
            let address = line.firstRange(of: "address=")
        else { return nil }
        let place = line[address.upperBound...].prefix { $0 != " " && $0 != "\"" }
        return place.lastIndex(of: ":").flatMap { UInt16(place[place.index(after: $0)...]) }
    }

    var processID: Int32 { process.processID }

    /// Returns the processor time that the hub has used so far.
    func use() throws -> ProcessUse { try ProcessUse(processID) }

    var isRunning: Bool { process.isRunning }

    func signal(_ number: Int32) { process.signal(number) }

    func wait(milliseconds: Int) { process.wait(milliseconds: milliseconds) }

    func stop() {
        guard process.isRunning else { return }
        process.signal(SIGTERM)
        if process.wait(milliseconds: 20_000) == nil { process.signal(SIGKILL) }
    }
}
