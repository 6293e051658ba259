import Bytes
import Diagnostics
import Glibc
import Settings
import System
import WebSocket

/// One question to a log, answered by a process of its own: this very program, as it would be called at a terminal. What goes
/// wrong with it, and whatever it takes, is not the hub's.
struct QuestionRun {
    let question: LogQuestion
    let place: QuestionPlace
    let program: String

    func with(_ option: String) -> QuestionRun {
        QuestionRun(question: question.with(option), place: place, program: program)
    }

    func answer() -> HTTPResponse {
        do throws(SystemError) {
            return try run()
        } catch {
            Log.shared.error("a question to the event log cannot be asked", [.reason("\(error)")])
            return TenantsAPI.failed("the question cannot be asked")
        }
    }

    private var words: [String] {
        let start = question.isOfLog ? ["log", question.command] : [question.command]
        return [program] + start + ["--config=/dev/null", "--log=\(place.log)"] + question.words
    }

    private func run() throws(SystemError) -> HTTPResponse {
        guard question.form == .bundle else { return try run(words) { $0 } }
        // Beside the log, where there is room for it, and under a name that is nobody's.
        let directory = try DiskDirectory(Directories.parent(of: place.log))
        let name = "question-\(UUIDText.random()).bundle"
        defer { try? directory.remove(name) }
        return try run(words + ["\(directory.path)/\(name)"]) { _ in
            let file = try? directory.open(name, for: .reading)
            return (try? file?.contents(atMost: UInt64(Limits.maximumQuestionBytes) + 1)) ?? []
        }
    }

    /// - Parameter body: the answer's, made of what the process printed.
    private func run(_ words: [String], _ body: ([UInt8]) -> [UInt8]) throws(SystemError) -> HTTPResponse {
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
        guard let printed = gather(output.reading, until: deadline) else { return end(process, deadline) }
        // What it says beside its answer fits into a pipe; one that waits for more room than that is ended here.
        guard let ending = process.wait(milliseconds: left(until: deadline)) else { return end(process, deadline) }
        let said = gather(errors.reading, until: deadline) ?? []
        guard case .exited(let code) = ending else {
            Log.shared.error("a question to the event log ended by a signal", [.reason(question.command)])
            return TenantsAPI.failed("the question ended without an answer")
        }
        return answer(code, body(printed), String(decoding: said, as: UTF8.self))
    }

    private func left(until deadline: UInt64) -> Int {
        let now = Clock.monotonicNanoseconds()
        return now < deadline ? max(1, Int((deadline - now) / 1_000_000)) : 0
    }

    /// Nil where it is too much, or the time is up first.
    private func gather(_ descriptor: Int32, until deadline: UInt64) -> [UInt8]? {
        var bytes: [UInt8] = []
        while bytes.count <= Limits.maximumQuestionBytes {
            let milliseconds = left(until: deadline)
            guard milliseconds > 0, Poll.wait(for: descriptor, timeoutMilliseconds: Int32(clamping: milliseconds))
            else {
                return nil
            }
            let more = ByteStream.read(descriptor)
            if more.isEmpty { return bytes }
            bytes += more
        }
        return nil
    }

    private func end(_ process: ChildProcess, _ deadline: UInt64) -> HTTPResponse {
        process.signal(SIGKILL)
        process.wait(milliseconds: 5000)
        guard left(until: deadline) > 0 else {
            return .message(
                .serviceUnavailable,
                "no answer within \(Limits.questionTimeLimit.wholeSeconds) s: ask for a smaller window, or at the hub's machine"
            )
        }
        return .message(
            .contentTooLarge,
            "the answer is larger than \(Limits.maximumQuestionBytes >> 20) MiB: ask for less, or at the hub's machine")
    }

    private func answer(_ code: Int32, _ body: [UInt8], _ said: String) -> HTTPResponse {
        // The question was wrong: `tidewire: what is wrong`.
        if code == 2 { return .message(.badRequest, Self.plain(said)) }
        if body.count > Limits.maximumQuestionBytes {
            return .message(.contentTooLarge, "the bundle is too large: ask for less")
        }
        var response = HTTPResponse(.ok, contentType: question.form.contentType, body: body)
        response.headers.append(HTTPHeader("tidewire-exit-code", "\(code)"))
        response.headers.append(HTTPHeader("cache-control", "no-store"))
        if !said.isEmpty {
            response.headers.append(HTTPHeader("tidewire-remarks", PercentText.encoded(String(said.prefix(4000)))))
        }
        return response
    }

    private static func plain(_ said: String) -> String {
        said.split(separator: "\n").prefix(2).joined(separator: " ").replacing("tidewire: ", with: "")
    }
}
