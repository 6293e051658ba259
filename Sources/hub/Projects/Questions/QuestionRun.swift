import Bytes
import Diagnostics
import Gateway
import Glibc
import Settings
import System
import WebSocket

/// Question to a log that a separate process of this program answers, called as in a terminal. The process's failures,
/// memory and time do not affect the hub.
struct QuestionRun {
    enum What: Sendable {
        case question(LogQuestion)
        /// Request for a part of an earlier answer.
        case part(AnswerPart)
    }

    let what: What
    let place: QuestionPlace
    let program: String
    /// Client that waits for the answer. If it disconnects, the process is ended.
    let client: WaitingClient

    /// Returns the same run with one more option in its question.
    func with(_ option: String) -> QuestionRun {
        guard case .question(let question) = what else { return self }
        return QuestionRun(
            what: .question(question.with(option)), place: place, program: program, client: client)
    }

    /// Runs the question, or reads the part of an earlier answer, and returns the answer.
    func answer() -> HTTPResponse {
        guard !client.hasLeft else { return refusal(.abandoned) }
        do throws(SystemError) {
            let spool = try AnswerSpool(besideLog: place.log)
            let now = Clock.unixMicroseconds() / 1_000_000
            _ = spool.sweep(at: now)
            switch what {
            case .part(let part): return spool.part(part)
            case .question(let question):
                if question.isInParts, let obstacle = try spool.obstacle() {
                    return .message(.serviceUnavailable, obstacle)
                }
                return try run(question, spool, AnswerSpool.name(at: now))
            }
        } catch {
            Log.shared.error("cannot run the command that reads the event log for an operator", [.reason("\(error)")])
            return TenantsAPI.failed("cannot run the command that reads the event log")
        }
    }

    /// Returns the command line of the process that answers the question.
    private func words(_ question: LogQuestion) -> [String] {
        guard !question.batch.isEmpty else { return [program] + wordsOfCommand(question) }
        let texts = question.batch.map { question in
            JSONValue.array(wordsOfCommand(question).map { .string($0) }).text
        }
        return [program, "log", "ask", "--"] + texts
    }

    private func wordsOfCommand(_ question: LogQuestion) -> [String] {
        let start = question.isOfLog ? ["log", question.command] : [question.command]
        let log = question.readsLog ? ["--log=\(place.log)"] : []
        return start + ["--config=/dev/null"] + log + question.words
    }

    /// Answers a question by a separate process. If the answer is kept as a file, the file gets the name `name`.
    private func run(_ question: LogQuestion, _ spool: AnswerSpool, _ name: String) throws(SystemError) -> HTTPResponse
    {
        // The process writes a bundle to a file beside the log, where there is space for it.
        let isFile = question.form == .bundle
        let output = AnswerOutput(
            spool, name, most: question.isInParts && !isFile ? Limits.maximumAnswerBytes : Limits.maximumQuestionBytes)
        var isKept = false
        defer { if !isKept { spool.remove(name) } }
        let end = try run(words(question) + (isFile ? ["\(spool.directory.path)/\(name)"] : []), output)
        guard case .answered(let code, let said) = end else { return refusal(end) }
        // Exit code 2 means that the question was wrong; the output is `tidewire: reason`.
        if code == 2 { return .message(.badRequest, Self.plain(said)) }
        let file = try? spool.directory.open(name, for: .reading)
        let size = isFile ? try file?.size() ?? 0 : UInt64(output.count)
        let limit = question.isInParts ? Limits.maximumAnswerBytes : Limits.maximumQuestionBytes
        guard size <= UInt64(limit) else { return refusal(.tooMuch(limit)) }
        let first = min(size, UInt64(Limits.maximumQuestionBytes))
        let body = isFile ? try file?.bytes(at: 0, count: Int(first)) ?? [] : output.beginning
        assert(isFile || UInt64(body.count) == first, "a response has the whole answer or its first part")
        var response = HTTPResponse(.ok, contentType: question.form.contentType, body: body)
        response.headers.append(HTTPHeader("tidewire-exit-code", "\(code)"))
        response.headers.append(HTTPHeader("cache-control", "no-store"))
        if !said.isEmpty {
            response.headers.append(HTTPHeader("tidewire-remarks", PercentText.encoded(String(said.prefix(4000)))))
        }
        if size > first {
            isKept = true
            response.headers.append(HTTPHeader(AnswerSpool.partHeader, name))
            response.headers.append(HTTPHeader(AnswerSpool.sizeHeader, "\(size)"))
        }
        return response
    }

    // MARK: The process

    /// Ways in which the process that answers a question can end.
    private enum End {
        case answered(Int32, said: String)
        /// The answer exceeds the limit, which is given in bytes.
        case tooMuch(Int)
        /// The process did not end before the deadline.
        case late
        /// The client has disconnected.
        case abandoned
        /// A signal ended the process.
        case broken
    }

    private func run(_ words: [String], _ printed: AnswerOutput) throws(SystemError) -> End {
        let (input, output, errors) = (try Pipe(), try Pipe(), try Pipe())
        ByteStream.close(input.writing)
        let process: ChildProcess
        do throws(SystemError) {
            defer { for end in [input.reading, output.writing, errors.writing] { ByteStream.close(end) } }
            process = try ChildProcess(
                words, ends: .init(input: input.reading, output: output.writing, errors: errors.writing),
                environment: place.environment, isOnlyEnvironment: true)
        } catch {
            for end in [output.reading, errors.reading] { ByteStream.close(end) }
            throw error
        }
        defer { for end in [output.reading, errors.reading] { ByteStream.close(end) } }
        let deadline = Clock.monotonicNanoseconds() + Limits.questionTimeLimit.wholeNanoseconds
        guard try gather(output.reading, until: deadline, into: printed) else { return end(process, deadline, printed) }
        // A process whose messages exceed the pipe's buffer waits without end, and is ended at the deadline.
        guard let ending = process.wait(milliseconds: left(until: deadline)) else {
            return end(process, deadline, printed)
        }
        let said = AnswerOutput(most: Limits.maximumQuestionBytes)
        _ = try gather(errors.reading, until: deadline, into: said)
        guard case .exited(let code) = ending else {
            Log.shared.error("a signal ended the command that reads the event log for an operator", [.reason(words[1])])
            return .broken
        }
        return .answered(code, said: withoutPaths(String(decoding: said.beginning, as: UTF8.self)))
    }

    private func left(until deadline: UInt64) -> Int {
        let now = Clock.monotonicNanoseconds()
        return now < deadline ? max(1, Int((deadline - now) / 1_000_000)) : 0
    }

    /// Pause in milliseconds between two checks if the client is still connected.
    private static let patienceMilliseconds = 200

    /// Reads the process's output. Returns false if it is too large, at the deadline, or if the client has
    /// disconnected.
    private func gather(
        _ descriptor: Int32, until deadline: UInt64, into output: AnswerOutput
    ) throws(SystemError) -> Bool {
        while output.count <= output.most {
            let milliseconds = left(until: deadline)
            guard milliseconds > 0, !client.hasLeft else { return false }
            let isThere = Poll.wait(
                for: descriptor, timeoutMilliseconds: Int32(min(milliseconds, Self.patienceMilliseconds)))
            guard isThere else { continue }
            let more = ByteStream.read(descriptor)
            if more.isEmpty { return true }
            try output.append(more)
        }
        return false
    }

    private func end(_ process: ChildProcess, _ deadline: UInt64, _ output: AnswerOutput) -> End {
        process.signal(SIGKILL)
        process.wait(milliseconds: 5000)
        if client.hasLeft { return .abandoned }
        return left(until: deadline) > 0 ? .tooMuch(output.most) : .late
    }

    private func refusal(_ end: End) -> HTTPResponse {
        switch end {
        case .tooMuch(let most):
            .message(
                .contentTooLarge,
                "the answer is larger than \(most >> 20) MiB: ask for less"
                    + (most < Limits.maximumAnswerBytes ? ", in parts (parts=true)," : "") + " or at the hub's machine")
        case .late:
            .message(
                .serviceUnavailable,
                "no answer within \(Limits.questionTimeLimit.wholeSeconds) s: ask for a smaller window, or at the hub's machine"
            )
        case .broken, .answered, .abandoned: TenantsAPI.failed("the question ended without an answer")
        }
    }

    /// Removes the log's path from the text, because clients of the API must not learn it.
    private func withoutPaths(_ said: String) -> String {
        let parent = place.log.split(separator: "/", omittingEmptySubsequences: false).dropLast().joined(separator: "/")
        return said.replacing(place.log, with: "the log").replacing(parent + "/", with: "")
    }

    static func plain(_ said: String) -> String {
        said.split(separator: "\n").prefix(2).joined(separator: " ").replacing("tidewire: ", with: "")
    }
}

/// Output of a process: the first part in memory, as much as one response takes. If there is more, all of it is in a
/// file.
private final class AnswerOutput {
    private let spool: AnswerSpool?
    private let name: String
    private var file: (any StorageFile)?
    private(set) var beginning: [UInt8] = []
    private(set) var count = 0
    let most: Int

    init(_ spool: AnswerSpool? = nil, _ name: String = "", most: Int) {
        (self.spool, self.name, self.most) = (spool, name, most)
    }

    func append(_ bytes: [UInt8]) throws(SystemError) {
        let room = Limits.maximumQuestionBytes - beginning.count
        if let spool, bytes.count > room, file == nil, most > Limits.maximumQuestionBytes {
            let (file, held) = (try spool.directory.open(name, for: .creating), beginning)
            try file.write(held.rawBytes, at: 0)
            self.file = file
        }
        if let file {
            try file.write(bytes.rawBytes, at: UInt64(count))
        }
        beginning += bytes.prefix(room)
        count += bytes.count
        assert(beginning.count == min(count, Limits.maximumQuestionBytes), "the beginning is what one response takes")
        assert(
            file != nil || spool == nil || count <= Limits.maximumQuestionBytes || most <= Limits.maximumQuestionBytes,
            "an answer in parts that is too large for one response is in a file")
    }
}
