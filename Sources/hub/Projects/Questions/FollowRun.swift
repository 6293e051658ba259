import Bytes
import Diagnostics
import Gateway
import Glibc
import System
import WebSocket

/// Stream of a log's new entries to an operator: the lines of `tidewire tail --follow --json`, which a process of its own
/// writes, masked.
///
/// Each record is one line. Between records, a line with `"op":"HEARTBEAT"` shows every few seconds that the stream is alive,
/// and one with `"op":"END"` says why it ends. A stream without such a line was cut: its client read too slowly, or the
/// hub ended.
struct FollowRun {
    let question: LogQuestion
    let place: QuestionPlace
    let program: String
    let client: WaitingClient
    /// End of the operator's token in Unix seconds; nil if it has none.
    let expiry: Int64?
    /// True if the hub ends.
    let isEnding: @Sendable () -> Bool

    /// Streams of all projects at once.
    static let mostAtOnce = 8
    static let heartbeat = Duration.seconds(10)
    static let longest = Duration.seconds(3600)
    /// Longest line of a stream. A longer one ends it.
    static let longestLine = 16 << 20
    /// Time in which a wrong question ends its process.
    private static let startup = Duration.seconds(2)

    /// Runs until the stream ends. Returns a response if the stream could not begin.
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

    /// Returns the response for a process that ended before it printed anything.
    private func refusal(_ process: ChildProcess, _ errors: Int32) -> HTTPResponse {
        guard case .exited(let code) = process.wait(milliseconds: 5000) else {
            return TenantsAPI.failed("the stream ended before it began")
        }
        let said = String(decoding: ByteStream.read(errors), as: UTF8.self)
        return code == 2
            ? .message(.badRequest, QuestionRun.plain(said)) : TenantsAPI.failed("the stream ended before it began")
    }

    /// Sends what the process prints, line by line, until one side ends.
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

/// Buffer that makes whole lines of what a process prints.
struct LineBuffer {
    private var rest: [UInt8] = []
    private let longest: Int

    init(longest: Int) { self.longest = longest }

    /// Returns all lines that are whole now, which may be none; nil if a line is too long.
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
