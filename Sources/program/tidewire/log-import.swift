import Bytes
import Console
import Diagnostics
import EventLog
import Glibc
import History
import Settings
import System

/// Command `tidewire log import`: creates a log from an export.
struct LogImportCommand: Command {
    let name = "import"
    let summary = "Make an event log from an export."
    let discussion = """
        Reads the output of 'tidewire log export' from FILE, or from standard input with -, and makes an identical \
        log, with the same offsets, positions, epochs, times and values. The target directory must not contain a log. \
        A malformed line stops the import; the error names the line, and nothing of the import is left. The command \
        makes the log in a directory beside the target (DIR.import), and moves it to its place at the end. An \
        interrupted import leaves no log, and can be run again.
        """
    let operands = [Operand("FILE", .one, "The export; - is standard input.")]
    let options: [Option] = [.withoutProgress, .log, .project]
    let optionGroups: [OptionGroup] = [.configuration(of: [Setting(\.dataDirectory), Setting(\.segmentBytes)])]
    let examples = [
        Example("tidewire log import incident.ndjson --data-dir /tmp/incident", "Look at a log from another machine:"),
        Example("gunzip < log.ndjson.gz | tidewire log import - --data-dir /var/lib/tidewire", "Restore a backup:"),
    ]
    let exitCodes: [ExitCode] = [.notFound, .unreachable]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        let name = arguments.operands[0]
        let configuration = try arguments.configuration(terminal)
        let path = try arguments.logDirectory(terminal)
        let source = try LineSource(name)
        let progress = Progress(terminal, isQuiet: arguments.has(.withoutProgress))
        return try LogAccess.explained {
            let place = try ImportPlace(
                path, dataDirectory: arguments.value(of: .log) == nil ? configuration.dataDirectory : nil)
            Signals.noteInterruptions()
            do {
                let log = LogImport(into: place.directory, segmentBytes: UInt64(configuration.segmentBytes))
                try take(source, into: log, progress)
                try place.keep()
                try terminal.print("imported \(log.lines) lines into \(path); the log ends at @\(log.endOffset)")
                return .ok
            } catch let refusal as ImportRefusal {
                place.clear()
                throw CommandFailure(
                    .notFound, "\(name == "-" ? "standard input" : name), \(refusal)",
                    hint:
                        "Nothing was imported. Make the export again with 'tidewire log export', or correct that line.")
            } catch {
                place.clear()
                throw error
            }
        }
    }

    private func take(_ source: LineSource, into log: LogImport, _ progress: Progress) throws {
        defer { progress.clear() }
        try source.forEachLine { line, bytesRead in
            try LineSource.throwIfInterrupted()
            try log.take(line)
            progress.note("\(source.share(bytesRead)), the log is at @\(log.endOffset)")
        }
        try log.finish()
    }
}

/// Source of an export's lines: a file or standard input.
private struct LineSource {
    private let descriptor: Int32
    private let name: String
    private static let usualBytes = 4 << 20
    /// Size of the file in bytes, for the progress; nil for a pipe.
    private var size: UInt64?

    init(_ name: String) throws {
        self.name = name
        size = nil
        guard name != "-" else {
            descriptor = STDIN_FILENO
            return
        }
        do throws(SystemError) {
            // SAFETY: Swift passes a C string that lives for the call.
            descriptor = try systemCall("open", name) { unsafe Glibc.open(name, O_RDONLY | O_CLOEXEC) }
        } catch {
            throw CommandFailure(.unreachable, "cannot read the export: \(error)", hint: error.advice)
        }
        let end = lseek(descriptor, 0, SEEK_END)
        // A source without seeking, such as a pipe, has no size.
        guard end > 0, lseek(descriptor, 0, SEEK_SET) == 0 else { return }
        size = UInt64(end)
    }

    /// Returns the progress text for a number of read bytes: the percentage of the file, if its size is known.
    func share(_ bytes: UInt64) -> String {
        let text = "\(ByteText.write(bytes)) read"
        guard let size, size > 0 else { return text }
        return "\(Progress.percent(bytes, of: size)), \(text)"
    }

    /// Calls `take` with each line, and with the number of bytes read from the source so far.
    func forEachLine(_ take: (RawSpan, UInt64) throws -> Void) throws {
        var pending = ByteWriter(capacity: 256 << 10)
        var searched = 0
        var bytesRead: UInt64 = 0
        while true {
            let count = try read(into: &pending)
            if count == 0 { break }
            bytesRead += UInt64(count)
            var (start, at) = (0, searched)
            while at < pending.count {
                at += 1
                guard pending.bytes.byte(at - 1) == UInt8(ascii: "\n") else { continue }
                try take(pending.bytes.extracting(start..<at - 1), bytesRead)
                let length = at - start
                start = at
                guard length > Self.usualBytes else { continue }
                // The buffer of a long line is released when the next line begins.
                pending.dropFirst(start)
                pending.shrink(to: Self.usualBytes)
                (start, at) = (0, 0)
            }
            pending.dropFirst(start)
            searched = pending.count
            guard searched <= Limits.maximumImportLineBytes else {
                throw CommandFailure(
                    .notFound, "\(name): a line is longer than \(Limits.maximumImportLineBytes >> 20) MiB",
                    hint: "Is it an export of 'tidewire log export'? Its lines are shorter.")
            }
        }
        if pending.count > 0 { try take(pending.bytes, bytesRead) }
    }

    static func throwIfInterrupted() throws {
        guard Signals.wasInterrupted else { return }
        throw CommandFailure(
            .notFound, "interrupted; nothing of the import is left",
            hint: "Run the same command again to import everything.")
    }

    /// Waits until the source has input. A pipe may have none for a long time, so the wait throws if the user
    /// interrupts the command.
    private func awaitInput() throws {
        while true {
            try Self.throwIfInterrupted()
            var waiting = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            // SAFETY: poll reads and writes the one pollfd above and keeps no pointer to it.
            let found = unsafe poll(&waiting, 1, 200)
            if found > 0 || (found < 0 && errno != EINTR) { return }
        }
    }

    private func read(into buffer: inout ByteWriter) throws -> Int {
        try awaitInput()
        do throws(SystemError) {
            // SAFETY: the kernel writes at most as many bytes as the buffer has, and says how many.
            return unsafe try buffer.append(upTo: 256 << 10) { room throws(SystemError) in
                try systemCall("read", name) { unsafe Glibc.read(descriptor, room.baseAddress, room.count) }
            }
        } catch {
            throw CommandFailure(.unreachable, "cannot read the export: \(error)", hint: error.advice)
        }
    }
}
