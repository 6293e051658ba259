import Bytes
import Diagnostics
import Gateway
import Glibc
import System
import WebSocket

/// Stream of a log's new entries to an operator. A separate process writes it: `tidewire tail --follow --json`, with
/// masked values.
///
/// Each record is one line. Every few seconds without a record, a line with `"op":"HEARTBEAT"` shows that the stream
/// still works. A line with `"op":"END"` states why the stream ends. If that line is missing, the stream was cut: the
/// client read too slowly, or the hub ended.
struct FollowRun {
    let question: LogQuestion
    let place: QuestionPlace
    let program: String
    let client: WaitingClient
    /// Expiry of the operator's token in Unix seconds; nil if it has none.
    let expiry: Int64?
    /// Returns true if the hub is ending.
    let isEnding: @Sendable () -> Bool

    /// Maximum number of simultaneous streams, of all projects together.
    static let mostAtOnce = 8
    static let heartbeat = Duration.seconds(10)
    static let longest = Duration.seconds(3600)
    /// Maximum number of bytes in a line. A longer line ends the stream.
    static let longestLine = 16 << 20
    /// Time within which a process with a wrong question exits. The response begins with the first output, or after
    /// this time.
    private static let startup = Duration.seconds(2)

    /// Sends the stream until either side ends it, and returns nil. Returns a response if the stream could not begin.
    func run() -> HTTPResponse? {
        do throws(SystemError) {
            return try stream()
        } catch {
            Log.shared.error("cannot run the command that follows the event log", [.reason("\(error)")])
            client.leave()
            return TenantsAPI.failed("cannot run the command that follows the event log")
        }
    }

    private func stream() throws(SystemError) -> HTTPResponse? {
        let (input, output, errors) = (try Pipe(), try Pipe(), try Pipe())
        ByteStream.close(input.writing)
        let process: ChildProcess
        do throws(SystemError) {
            defer { for end in [input.reading, output.writing, errors.writing] { ByteStream.close(end) } }
            process = try ChildProcess(
                [program, question.command, "--config=/dev/null", "--log=\(place.log)"] + question.words,
                ends: .init(input: input.reading, output: output.writing, errors: errors.writing),
                environment: place.environment, isOnlyEnvironment: true)
        } catch {
            for end in [output.reading, errors.reading] { ByteStream.close(end) }
            throw error
        }
        defer {
            process.signal(SIGKILL)
            process.wait(milliseconds: 5000)
            for end in [output.reading, errors.reading] { ByteStream.close(end) }
        }
        let began = Clock.monotonicNanoseconds()
        if Poll.wait(for: output.reading, timeoutMilliseconds: Int32(Self.startup.wholeMilliseconds)) {
            let first = ByteStream.read(output.reading)
            if first.isEmpty { return refusal(process, errors.reading) }
            return pass(on: first, from: output.reading, since: began)
        }
        return pass(on: [], from: output.reading, since: began)
    }

    /// Returns the response for a process that ended before it wrote a line.
    private func refusal(_ process: ChildProcess, _ errors: Int32) -> HTTPResponse {
        guard case .exited(let code) = process.wait(milliseconds: 5000) else {
            return TenantsAPI.failed("the stream ended before it began")
        }
        let said = String(decoding: ByteStream.read(errors), as: UTF8.self)
        return code == 2
            ? .message(.badRequest, QuestionRun.plain(said)) : TenantsAPI.failed("the stream ended before it began")
    }

    /// Sends the process's output to the client, line by line, until either side ends. Always returns nil, because the
    /// client already has the whole answer.
    private func pass(on first: [UInt8], from output: Int32, since began: UInt64) -> HTTPResponse? {
        var head = HTTPResponse(.ok, contentType: LogQuestion.Form.json.contentType, body: [])
        // Proxies must neither cache nor buffer the answer.
        head.headers += [HTTPHeader("cache-control", "no-store"), HTTPHeader("x-accel-buffering", "no")]
        guard client.send(.head(head)) else { return nil }
        var lines = LineBuffer(longest: Self.longestLine)
        var lastSent = Clock.monotonicNanoseconds()
        var bytes = first
        while true {
            guard let whole = lines.take(bytes) else { return end("a record is too large for a stream") }
            let now = Clock.monotonicNanoseconds()
            if !whole.isEmpty {
                guard client.send(.more(whole)) else { return nil }
                lastSent = now
            } else if now - lastSent >= Self.heartbeat.wholeNanoseconds {
                let beat = #"{"op":"HEARTBEAT","time":"\#(Self.moment())"}"# + "\n"
                guard client.send(.more(Array(beat.utf8))) else { return nil }
                lastSent = now
            }
            if now - began >= Self.longest.wholeNanoseconds { return end("a stream lasts an hour at most: ask again") }
            if let expiry, Clock.unixMicroseconds() / 1_000_000 >= expiry { return end("the token has expired") }
            if isEnding() { return end("the hub ends: ask again") }
            guard !client.hasLeft else { return nil }
            bytes = []
            if Poll.wait(for: output, timeoutMilliseconds: 500) {
                bytes = ByteStream.read(output)
                if bytes.isEmpty { return end("the log cannot be followed any more: ask again") }
            }
        }
    }

    private func end(_ reason: String) -> HTTPResponse? {
        let line = #"{"op":"END","time":"\#(Self.moment())","reason":"\#(reason)"}"# + "\n"
        if client.send(.more(Array(line.utf8))) { _ = client.send(.end) }
        return nil
    }

    private static func moment() -> String { TimeText.write(Clock.unixMicroseconds() / 1_000_000) + "Z" }
}

/// Buffer that divides a process's output into lines.
struct LineBuffer {
    private var rest: [UInt8] = []
    private let longest: Int

    init(longest: Int) { self.longest = longest }

    /// Adds bytes and returns all complete lines, possibly none. Nil if a line is too long.
    mutating func take(_ bytes: [UInt8]) -> [UInt8]? {
        guard let end = bytes.lastIndex(of: UInt8(ascii: "\n")) else {
            rest += bytes
            return rest.count <= longest ? [] : nil
        }
        let whole = rest + bytes[...end]
        rest = Array(bytes[(end + 1)...])
        return whole
    }
}
