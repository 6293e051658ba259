import Bytes
import Console
import Diagnostics
import EventLog
import Glibc
import History
import Settings
import System

/// `tidewire log import`
struct LogImportCommand: Command {
    let name = "import"
    let summary = "Make an event log of an export."
    let discussion = """
        Reads what 'tidewire log export' wrote, from FILE or with - from standard input, and makes the log it tells of, \
        with the same offsets, positions, epochs, times and values. Only into a directory without a log. A line that is \
        not as it should be stops the import with its number, and nothing is left behind.
        """
    let operands = [Operand("FILE", .one, "The export; - is standard input.")]
    let options: [Option] = [.log]
    let optionGroups: [OptionGroup] = [.configuration(of: [Setting(\.dataDirectory), Setting(\.segmentBytes)])]
    let examples = [
        Example("tidewire log import incident.ndjson --data-dir /tmp/incident", "Look at somebody else's log:"),
        Example("gunzip < log.ndjson.gz | tidewire log import - --data-dir /var/lib/tidewire", "Restore a backup:"),
    ]
    let exitCodes: [ExitCode] = [.notFound, .unreachable]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        let name = arguments.operands[0]
        let segmentBytes = UInt64(try arguments.configuration(terminal).segmentBytes)
        let path = try arguments.logDirectory(terminal)
        let source = try LineSource(name)
        return try LogAccess.explained {
            let directory = try emptyDirectory(path)
            do {
                let log = LogImport(into: directory, segmentBytes: segmentBytes)
                try source.forEachLine { try log.take($0) }
                let end = log.endOffset
                try log.finish()
                try terminal.print("imported \(log.lines) lines into \(path); the log ends at @\(end)")
                return .ok
            } catch let refusal as ImportRefusal {
                clear(directory)
                throw CommandFailure(.notFound, "\(name == "-" ? "standard input" : name), \(refusal)")
            } catch {
                clear(directory)
                throw error
            }
        }
    }

    private func emptyDirectory(_ path: String) throws -> DiskDirectory {
        do throws(SystemError) {
            try Directories.make(path)
            let directory = try DiskDirectory(path)
            guard try directory.names().allSatisfy({ $0 == "LOCK" }) else {
                throw SystemError(operation: "import into", subject: path, code: ENOTEMPTY)
            }
            return directory
        } catch {
            if error.code == ENOTEMPTY {
                throw CommandFailure(
                    .notFound, "\(path) is not empty: an export is imported only where no log is",
                    hint: "Choose another directory with --data-dir or --log.")
            }
            throw CommandFailure(.unreachable, "\(error)")
        }
    }

    /// The directory was empty before, so everything in it is of this import.
    private func clear(_ directory: DiskDirectory) {
        for name in (try? directory.names()) ?? [] { try? directory.remove(name) }
    }
}

/// A file, or standard input, line by line.
private struct LineSource {
    private let descriptor: Int32
    private let name: String

    init(_ name: String) throws {
        self.name = name
        guard name != "-" else {
            descriptor = STDIN_FILENO
            return
        }
        do throws(SystemError) {
            // SAFETY: Swift passes a C string that lives for the call.
            descriptor = try systemCall("open", name) { unsafe Glibc.open(name, O_RDONLY | O_CLOEXEC) }
        } catch {
            throw CommandFailure(.unreachable, "cannot read the export: \(error)")
        }
    }

    func forEachLine(_ take: (RawSpan) throws -> Void) throws {
        var pending = ByteWriter(capacity: 256 << 10)
        var searched = 0
        while try read(into: &pending) > 0 {
            var start = 0
            for at in searched..<pending.count where pending.bytes.byte(at) == UInt8(ascii: "\n") {
                try take(pending.bytes.extracting(start..<at))
                start = at + 1
            }
            pending.dropFirst(start)
            searched = pending.count
            guard searched <= Limits.maximumImportLineBytes else {
                throw CommandFailure(.notFound, "\(name): a line that is too long")
            }
        }
        if pending.count > 0 { try take(pending.bytes) }
    }

    private func read(into buffer: inout ByteWriter) throws -> Int {
        do throws(SystemError) {
            // SAFETY: the kernel writes at most as many bytes as the buffer has, and says how many.
            return unsafe try buffer.append(upTo: 256 << 10) { room throws(SystemError) in
                try systemCall("read", name) { unsafe Glibc.read(descriptor, room.baseAddress, room.count) }
            }
        } catch {
            throw CommandFailure(.unreachable, "cannot read the export: \(error)")
        }
    }
}
