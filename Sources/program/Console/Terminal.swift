import Glibc
import Settings
import System

/// Reason why no more output can be written.
public enum OutputFailure: Error, Equatable {
    /// The reader of a pipe has closed it.
    case readerGone
    case failed(errno: Int32)
}

extension OutputFailure: CustomStringConvertible {
    public var description: String {
        switch self {
        case .readerGone: "nobody reads the output any more"
        // SAFETY: strerror returns a string that ends in a zero byte. It is copied before another call can change it.
        case .failed(let errno): "cannot write the output: \(unsafe String(cString: strerror(errno)))"
        }
    }
}

/// Output of a command, and facts about its reader. Commands access the process only through this class.
///
/// Output is buffered and written in large pieces. A command that follows the log calls `flush()` before it waits.
public final class Terminal {
    public typealias Writer = ([UInt8]) throws(OutputFailure) -> Void

    private let screenWidth: Int?
    /// Format in which rows are printed.
    public internal(set) var form = OutputForm.table
    private var lastHeading = ""
    /// True if stderr is a screen.
    public let hasErrorScreen: Bool
    public let surroundings: ConfigurationSurroundings
    /// Clock that measures slow operations.
    public let time: any TimeSource
    private let writeOutput: Writer
    private let writeErrors: Writer
    /// Function that reads a line that a person types; nil if stdin is no terminal.
    private let readAnswer: (() -> String?)?
    private var pending: [UInt8] = []

    private static let pendingLimit = 64 << 10

    public init(
        width: Int?, surroundings: ConfigurationSurroundings, output: @escaping Writer, errors: @escaping Writer,
        hasErrorScreen: Bool = false, time: any TimeSource = KernelTime(), answers: (() -> String?)? = nil
    ) {
        self.time = time
        self.hasErrorScreen = hasErrorScreen
        screenWidth = width
        self.surroundings = surroundings
        writeOutput = output
        writeErrors = errors
        readAnswer = answers
    }

    /// Width of the screen in columns, if the output is a table on a screen; otherwise nil. If it is nil, commands
    /// neither cut nor colour text.
    public var width: Int? { form == .table ? screenWidth : nil }

    /// True if the output goes to a screen, which control characters in the data could control.
    var hasScreen: Bool { screenWidth != nil }

    /// True if the output is a table on a screen, so that a person reads it as it is printed.
    public var isInteractive: Bool {
        width != nil
    }

    public func print(_ line: String) throws(OutputFailure) {
        if line.utf8.count < Self.pendingLimit {
            pending.append(contentsOf: line.utf8)
        } else {
            // SAFETY: any byte is a valid UInt8, and the line outlives the call.
            try write(unsafe line.utf8.span.bytes)
        }
        pending.append(UInt8(ascii: "\n"))
        if pending.count >= Self.pendingLimit { try flush() }
    }

    /// Prints the heading of a table. As CSV, a heading equal to the previous one is not repeated.
    public func print(heading table: TableStream) throws(OutputFailure) {
        guard form != .csv || table.heading != lastHeading else { return }
        lastHeading = table.heading
        try print(table.heading)
    }

    /// Prints a remark that is not a row: between the rows of a table, or on stderr for other formats.
    public func remark(_ line: String) throws(OutputFailure) {
        if form == .table { return try print(line) }
        complain(line)
    }

    public func write(_ bytes: [UInt8]) throws(OutputFailure) {
        pending.append(contentsOf: bytes)
        if pending.count >= Self.pendingLimit { try flush() }
    }

    /// Writes any number of bytes. The terminal copies them piece by piece.
    public func write(_ bytes: RawSpan) throws(OutputFailure) {
        var start = 0
        while start < bytes.byteCount {
            let end = min(bytes.byteCount, start + Self.pendingLimit - pending.count)
            // SAFETY: the bytes are copied inside the closure.
            unsafe bytes.extracting(start..<end).withUnsafeBytes { unsafe pending.append(contentsOf: $0) }
            start = end
            if pending.count >= Self.pendingLimit { try flush() }
        }
    }

    public func flush() throws(OutputFailure) {
        guard !pending.isEmpty else { return }
        let bytes = pending
        pending.removeAll(keepingCapacity: true)
        try writeOutput(bytes)
    }

    /// Writes part of a line to stderr, without a line break, for a person at a screen.
    public func complain(part: String) {
        try? writeErrors(Array(part.utf8))
    }

    /// Asks a person a question on the terminal and returns the answer; nil if stdin is no terminal or at its end.
    public func ask(_ question: String) -> String? {
        guard let readAnswer else { return nil }
        complain(part: question)
        return readAnswer()
    }

    /// Writes a line to stderr. A failure is ignored, because there is no other place to report it.
    public func complain(_ line: String) {
        try? writeErrors(Array((line + "\n").utf8))
    }
}

extension Terminal {
    public static func ofThisProcess() -> Terminal {
        let surroundings = ConfigurationSurroundings.ofThisProcess
        return Terminal(
            width: StandardStream.output.columns, surroundings: surroundings,
            output: StandardStream.output.write, errors: StandardStream.errors.write,
            hasErrorScreen: isatty(STDERR_FILENO) == 1, answers: isatty(STDIN_FILENO) == 1 ? { readLine() } : nil)
    }
}

/// A file descriptor that the process inherited.
public struct StandardStream: Sendable {
    public let descriptor: Int32

    public static let output = StandardStream(descriptor: STDOUT_FILENO)
    public static let errors = StandardStream(descriptor: STDERR_FILENO)

    /// Width of the terminal in columns; nil if the stream is no terminal.
    public var columns: Int? {
        guard isatty(descriptor) == 1 else { return nil }
        var size = winsize()
        // SAFETY: TIOCGWINSZ writes one winsize to the variable above and keeps no pointer to it.
        let succeeded = unsafe ioctl(descriptor, UInt(TIOCGWINSZ), &size) == 0
        return succeeded && size.ws_col > 0 ? Int(size.ws_col) : 80
    }

    public func write(_ bytes: [UInt8]) throws(OutputFailure) {
        var written = 0
        while written < bytes.count {
            let (count, error) = writeOnce(bytes, from: written)
            guard count < 0 else {
                written += count
                continue
            }
            try recover(from: error)
        }
    }

    private func recover(from error: Int32) throws(OutputFailure) {
        switch error {
        case EINTR: return
        case EAGAIN: waitUntilWritable()
        case EPIPE: throw .readerGone
        default: throw .failed(errno: error)
        }
    }

    private func writeOnce(_ bytes: [UInt8], from start: Int) -> (count: Int, errno: Int32) {
        // SAFETY: the pointer is used inside the closure only, and start < count, so the range lies in the array.
        unsafe bytes.withUnsafeBytes { bytes in
            let count = unsafe Glibc.write(descriptor, bytes.baseAddress?.advanced(by: start), bytes.count - start)
            return (count, errno)
        }
    }

    /// Waits until the descriptor is writable. Another program that shares it may have made it nonblocking.
    private func waitUntilWritable() {
        var waiting = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
        // SAFETY: poll reads and writes the one pollfd above and keeps no pointer to it.
        unsafe _ = poll(&waiting, 1, -1)
    }
}
