import Bytes
import System

/// Connection to a worker process, which takes commands as lines and answers each with one line.
public final class Dialogue {
    private let sending: Int32
    private let receiving: Int32
    private let process: ChildProcess?
    private let name: String
    private var buffered: [UInt8] = []
    private var isClosed = false

    /// Starts this program with these words, and writes the program's error output to the file `errors`.
    public init(starting words: [String], errors: String? = nil) throws {
        let (toWorker, fromWorker) = (try Pipe(), try Pipe())
        name = words.last ?? "worker"
        (sending, receiving) = (toWorker.writing, fromWorker.reading)
        defer {
            ByteStream.close(toWorker.reading)
            ByteStream.close(fromWorker.writing)
        }
        process = try ChildProcess(
            ["/proc/self/exe"] + words, output: errors,
            ends: .init(input: toWorker.reading, output: fromWorker.writing))
    }

    /// Creates a dialogue with a worker that is already running, such as a thread of a test.
    init(sending: Int32, receiving: Int32, name: String) {
        (self.sending, self.receiving, self.name) = (sending, receiving, name)
        process = nil
    }

    deinit { close() }

    /// Ends the worker by closing its input.
    public func close() {
        guard !isClosed else { return }
        isClosed = true
        ByteStream.close(sending)
        process?.wait(milliseconds: 10_000)
        process?.signal(9)
        ByteStream.close(receiving)
    }

    public var processID: Int32? { process?.processID }

    @discardableResult
    public func ask(_ line: String, milliseconds: Int = 120_000) throws -> WorkerAnswer {
        try tell(line)
        return try answer(to: line, milliseconds: milliseconds)
    }

    /// Sends a command line without waiting for the answer. To let several workers run in parallel, send the line to
    /// all of them first and read the answers afterwards.
    public func tell(_ line: String) throws {
        guard ByteStream.write(Array((line + "\n").utf8), to: sending) else {
            throw BenchFailure("\(name) is gone: \(ending)")
        }
    }

    public func answer(to question: String, milliseconds: Int = 120_000) throws -> WorkerAnswer {
        let deadline = Clock.monotonicNanoseconds() + UInt64(milliseconds) * 1_000_000
        while true {
            if let end = buffered.firstIndex(of: UInt8(ascii: "\n")) {
                let line = Array(buffered[..<end])
                buffered.removeFirst(end + 1)
                return try understood(line, question)
            }
            let now = Clock.monotonicNanoseconds()
            guard now < deadline,
                Poll.wait(for: receiving, timeoutMilliseconds: Int32((deadline - now) / 1_000_000 + 1))
            else { throw BenchFailure("\(name) does not answer \"\(question.prefix(60))\"") }
            let more = ByteStream.read(receiving)
            if more.isEmpty { throw BenchFailure("\(name) is gone: \(ending)") }
            buffered += more
        }
    }

    private func understood(_ line: [UInt8], _ question: String) throws -> WorkerAnswer {
        guard let answer = WorkerAnswer(line: line) else {
            throw BenchFailure("\(name) answers \"\(String(decoding: line.prefix(200), as: UTF8.self))\"")
        }
        if let failure = answer.failure { throw BenchFailure("\(name), \(question.prefix(60)): \(failure)") }
        return answer
    }

    private var ending: String {
        process?.wait(milliseconds: 1000)
        return process?.ending.map { "\($0)" } ?? "it does not listen"
    }
}

/// Reader of lines from a descriptor.
struct LineReader {
    let descriptor: Int32
    private var buffered: [UInt8] = []
    private(set) var isAtEnd = false

    init(_ descriptor: Int32) { self.descriptor = descriptor }

    /// Reads the available bytes. Waits if there are none.
    mutating func fill() {
        let more = ByteStream.read(descriptor)
        isAtEnd = more.isEmpty
        buffered += more
    }

    mutating func next() -> String? {
        guard let end = buffered.firstIndex(of: UInt8(ascii: "\n")) else { return nil }
        defer { buffered.removeFirst(end + 1) }
        return String(decoding: buffered[..<end], as: UTF8.self)
    }
}
