import Bytes
import Calling
import Console
import Crypto
import Diagnostics
import EventLog
import History
import Projects
import Settings
import System

/// Options for commands that read a log, by which they ask a running hub over its operators' API.
extension Option {
    static let server = Option.value(
        "server", "URL",
        "Ask this hub, https://HOST, for its log instead of reading files. It needs --token, or OPERATOR_TOKEN in the environment."
    )
    static let token = Option.value(
        "token", "TOKEN",
        "The operator's token for --server. Other users of the machine can see it: OPERATOR_TOKEN is safer.")
    static let certificates = Option.value(
        "server-certificates", "FILE", "A PEM file with certificates to trust for https, beside the system's.")

    static let asking: [Option] = [.server, .token, .certificates]
}

enum AskingHelp {
    static let text = """
        --server URL asks a hub instead of reading files. The hub's machine masks the answer by its own rules, and \
        records there what you unmask. An answer has at most 256 MiB and takes at most a minute.
        """

    /// Help about `--server` for commands that fetch a window of the hub's log and work on it locally.
    static let window = """
        --server URL fetches the window from a hub, as a bundle that the hub's machine masks by its own rules, and \
        works on it here. The hub's machine records what --unmask shows. A bundle has at most 256 MiB and takes at \
        most a minute: --from and --to keep it small.
        """
}

/// Running hub that the command asks over the operators' API, as `--server` says.
struct AskedHub {
    private let request: HubRequest
    private let address: HubAddress
    private let project: String

    /// Reads the hub's address, project and token from the arguments. Nil if `--server` is not given.
    init?(_ arguments: Arguments, _ terminal: Terminal) throws {
        guard let text = arguments.value(of: .server) else {
            for option in [Option.token, .certificates] where arguments.value(of: option) != nil {
                throw UsageError("--\(option.name) goes with --server")
            }
            return nil
        }
        guard let address = HubAddress(text) else {
            throw UsageError("--server: expected the address of a hub, such as https://hub.example.com")
        }
        let token = arguments.value(of: .token) ?? terminal.surroundings.environment["OPERATOR_TOKEN"] ?? ""
        guard !token.isEmpty, token.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f }) else {
            throw UsageError(
                "--server needs an operator's token: set OPERATOR_TOKEN in the environment, or give --token")
        }
        self.address = address
        project = arguments.value(of: .project) ?? Setting(\.projectName).defaultText ?? ""
        do {
            request = try HubRequest(
                address, token: token, trusting: arguments.value(of: .certificates),
                waiting: Int(Limits.operatorAnswerLimit.wholeMilliseconds)
            ) { Signals.wasInterrupted }
        } catch {
            throw UsageError("--\(Option.certificates.name) \(error)")
        }
    }

    /// Sends a question (a command's name and options, as a query) to the hub's log. The hub may answer in parts: the
    /// function passes the bytes of all parts to `take` in order, and returns the first part, which has the headers.
    func ask(_ question: String, _ take: ([UInt8]) throws -> Void) throws -> HubAnswer {
        let answer = try get("log/\(question)&parts=true")
        try take(answer.body)
        guard let name = answer.header("tidewire-answer"),
            let size = answer.header("tidewire-answer-bytes").flatMap({ Int($0) })
        else { return answer }
        var taken = answer.body.count
        while taken < size {
            let part = try get("log/part?name=\(PercentText.encoded(name))&from=\(taken)")
            guard !part.body.isEmpty else {
                throw CommandFailure(
                    .unreachable, "\(address) sent only a part of its answer",
                    hint: "Ask again; the hub may have restarted.")
            }
            try take(part.body)
            taken += part.body.count
        }
        return answer
    }

    /// Sends a GET request to a path below the project in the operators' API.
    func get(_ path: String) throws -> HubAnswer { try answer { try request.get(place(path), accepting: "*/*") } }

    /// Sends a DELETE request to a path below the project in the operators' API.
    /// - Parameter success: the HTTP status of a successful answer; every other status throws.
    func delete(_ path: String, success: Int = 200) throws -> HubAnswer {
        try answer(success) { try request.delete(place(path), accepting: "*/*") }
    }

    /// Posts JSON to a path below the project in the operators' API.
    /// - Parameter tries: the maximum number of attempts. The function repeats the request only after status 503.
    func post(_ path: String, _ json: [UInt8], trying tries: Int = 1) throws -> HubAnswer {
        try answer {
            var answer = try request.post(place(path), json)
            for _ in 1..<max(1, tries) where answer.status == 503 && !Signals.wasInterrupted {
                BackgroundThread.rest(nanoseconds: 200_000_000)
                answer = try request.post(place(path), json)
            }
            return answer
        }
    }

    /// Returns the path below the asked project in the operators' API.
    private func place(_ path: String) -> String { "tenants/\(PercentText.encoded(project))/\(path)" }

    /// Prints the output and the messages of the command that the hub ran, as if this command had written them. Returns
    /// that command's exit code.
    func show(_ answer: HubAnswer, _ terminal: Terminal) throws -> ExitCode {
        try terminal.write(answer.body)
        try terminal.flush()
        let remarks = PercentText.decoded(answer.header("tidewire-remarks") ?? "")
        for line in remarks.split(separator: "\n") { terminal.complain(ScreenText.escaped(String(line))) }
        return answer.header("tidewire-exit-code").flatMap { Int32($0) }.flatMap { ExitCode(rawValue: $0) } ?? .ok
    }

    private func answer(_ success: Int = 200, _ ask: () throws -> HubAnswer) throws -> HubAnswer {
        let answer: HubAnswer
        do {
            answer = try ask()
        } catch let failure as HubFailure {
            throw CommandFailure(.unreachable, failure.description, hint: LogAccess.adviceAboutHub)
        }
        if answer.status == success { return answer }
        throw refusal(answer)
    }

    private func refusal(_ answer: HubAnswer) -> CommandFailure {
        let members = HubJSON(answer.body)?.members
        let said = members?["message"] ?? members?["error"]
        switch answer.status {
        case 400:
            return CommandFailure(
                .usage, said ?? "\(address) does not understand the question",
                hint:
                    "Is the hub older than this tidewire? 'tidewire --version' and the hub's front page tell the versions."
            )
        case 403 where said != nil:
            return CommandFailure(
                .unreachable, "\(address): \(said ?? "")",
                hint: "An operator with that role can ask, or give you a token with it (deploy/token --operator ROLE).")
        case 401, 403:
            return CommandFailure(
                .unreachable, "\(address) does not accept the token",
                hint:
                    "The token must be signed with the hub's operator_jwt_secret, and may have expired. If that setting is "
                    + "missing, the hub's operators' API is closed to everybody: set operator_jwt_secret there.")
        case 404:
            return CommandFailure(
                .notFound, "\(address) has no project \(project), or does not answer questions about its log",
                hint: "--project names another one.")
        default:
            return CommandFailure(
                .unreachable, "\(address) answers: \(said ?? "HTTP \(answer.status)")", hint: LogAccess.adviceAboutHub)
        }
    }
}

extension Arguments {
    /// Lets the hub run the command if `--server` is given, and prints its output. Returns the exit code of that run;
    /// nil if `--server` is not given.
    func answer(
        _ command: String, options: [Option], to file: String? = nil, _ terminal: Terminal
    ) throws -> ExitCode? {
        guard let hub = try AskedHub(self, terminal) else { return nil }
        guard value(of: .log) == nil else { throw UsageError("--server asks a hub, and --log reads files") }
        let question = "\(command)?\(try query(command, options, terminal.form))"
        let answer: HubAnswer
        if command == "bundle" {
            answer = try bundle(hub, question, terminal)
        } else if let file {
            let found = try Self.fetch(hub, question, to: file)
            answer = found.answer
            if found.size > 0 { try terminal.print("\(file): \(found.size) bytes") }
        } else {
            answer = try hub.ask(question) { try terminal.write($0) }
        }
        try terminal.flush()
        return Self.exitCode(answer, terminal)
    }

    /// Prints the messages of the command that the hub ran, and returns its exit code.
    fileprivate static func exitCode(_ answer: HubAnswer, _ terminal: Terminal) -> ExitCode {
        let remarks = PercentText.decoded(answer.header("tidewire-remarks") ?? "")
        for line in remarks.split(separator: "\n") { terminal.complain(ScreenText.escaped(String(line))) }
        return answer.header("tidewire-exit-code").flatMap { Int32($0) }.flatMap { ExitCode(rawValue: $0) } ?? .ok
    }

    /// Returns the command's operands and the given options as a query string of the operators' API.
    private func query(_ command: String, _ options: [Option], _ form: OutputForm) throws -> String {
        var items: [(String, String)] = []
        let names = LogQuestion.commands[command]?.operands ?? []
        for (place, operand) in operands.enumerated() where command != "bundle" {
            guard let name = place < names.count ? names[place] : names.last else { continue }
            items.append((["…", "?"].contains(name.last) ? String(name.dropLast()) : name, operand))
        }
        // This command itself applies these options: the hub's address, and the format and destination of the output.
        let local = Set(Option.asking.map(\.name) + ["project", "quiet", "output", "json", "file"])
        if has(.json) { items.append(("json", "true")) }
        if form == .csv || form == .markdown { items.append(("output", form == .csv ? "csv" : "md")) }
        for option in options where !local.contains(option.name) {
            let values = values(of: option)
            if values.isEmpty { continue }
            guard LogQuestion.options[option.name] != nil else {
                throw UsageError("--\(option.name) is only for files, and does not go with --server")
            }
            items += values.map { (option.name, $0) }
        }
        return items.map { "\($0)=\(PercentText.encoded($1))" }.joined(separator: "&")
    }

    /// Writes the bundle that the hub makes into a new file, the first operand.
    private func bundle(_ hub: AskedHub, _ question: String, _ terminal: Terminal) throws -> HubAnswer {
        let path = operands[0]
        guard !path.isEmpty, !path.hasSuffix("/"), !Directories.isThere(path) else {
            throw UsageError("FILE \(path): expected the name of a new file")
        }
        let (answer, size) = try Self.fetch(hub, question, to: path)
        if size > 0 { try terminal.print("\(path): \(size) bytes; 'tidewire open \(path)' shows what it contains") }
        return answer
    }

    /// Writes the hub's answer to a file, which gets its name once the answer is complete. An empty answer creates no
    /// file.
    fileprivate static func fetch(
        _ hub: AskedHub, _ question: String, to path: String
    ) throws -> (answer: HubAnswer, size: Int) {
        var (file, size): (NewFile?, Int) = (nil, 0)
        let answer = try hub.ask(question) { bytes in
            if bytes.isEmpty { return }
            let open = try file ?? NewFile(path)
            file = open
            try open.write(bytes)
            size += bytes.count
        }
        try file?.keep()
        return (answer, size)
    }
}

/// Access to a log for commands that work locally, also on a window of a hub's log.
extension Arguments {
    /// Returns the log on which the command works: local files, or a window that the function fetches from a hub as a
    /// bundle.
    /// - Parameter window: the options that select the window.
    /// - Parameter withPolicies: true to fetch the log's record of policies too.
    func log(asking window: [Option], withPolicies: Bool = false, _ terminal: Terminal) throws -> HistoryLog {
        guard let hub = try AskedHub(self, terminal) else { return try historyLog(terminal) }
        guard value(of: .log) == nil else { throw UsageError("--server asks a hub, and --log reads files") }
        guard value(of: .maskKey) == nil else {
            throw UsageError(
                "--mask-key does not go with --server, because a hub masks with its own key; to mask alike, make one "
                    + "bundle with 'tidewire bundle --server', and use --log with that file each time")
        }
        let place = terminal.surroundings.environment["TMPDIR"].flatMap { $0.isEmpty ? nil : $0 } ?? "/tmp"
        let directory = "\(place)/tidewire-\(UUIDText.random())"
        do {
            try Directories.make(directory)
            // The bundle stays open, so its name is no longer needed.
            defer { try? Directories.removeAll(directory) }
            let progress = Progress(terminal, isQuiet: has(.withoutProgress))
            progress.note("fetching the log from the hub")
            defer { progress.clear() }
            let selection = try query("bundle", window + [.mask, .unmask, .unmaskReason], .table)
            let items = [selection, withPolicies ? "policies=true" : ""].filter { !$0.isEmpty }
            let question = "bundle?" + items.joined(separator: "&")
            let (answer, size) = try Self.fetch(hub, question, to: directory + "/log.bundle")
            guard size > 0 else { throw Self.refusal(answer) }
            let bundle = try LogAccess.bundle(directory + "/log.bundle")
            let masking = try masking(terminal, ofLog: bundle.directory)
            try check(masking.shown, areIn: bundle)
            return HistoryLog(bundle, masking: masking)
        } catch let error as SystemError {
            throw CommandFailure(
                .notFound, "cannot store the hub's answer: \(error)",
                hint: "\(error.advice) TMPDIR names another directory.")
        }
    }

    /// Returns the error for a hub that sent no bundle, with the hub's reason.
    private static func refusal(_ answer: HubAnswer) -> CommandFailure {
        let remarks = PercentText.decoded(answer.header("tidewire-remarks") ?? "")
        let code = answer.header("tidewire-exit-code").flatMap { Int32($0) }.flatMap { ExitCode(rawValue: $0) }
        let words = remarks.split(separator: "\n").first.map { $0.replacing("tidewire: ", with: "") }
        return CommandFailure(
            code ?? .notFound, "the hub has no such window: \(words ?? "it gave no reason")",
            hint: "'tidewire log info --server' shows what its log holds.")
    }

    /// Records a planned replay in the audit file of the log: locally, or by the hub if `--server` is given.
    func auditReplay(_ what: String, _ terminal: Terminal) throws {
        guard let hub = try AskedHub(self, terminal) else {
            return try audit(.replay, what, ofLog: logDirectory(terminal), terminal)
        }
        let answer = try hub.get("log/audit?replayed=\(PercentText.encoded(what))&json=true")
        guard answer.header("tidewire-exit-code").map({ $0 == "0" || $0 == "5" }) ?? false else {
            throw CommandFailure(
                .notFound, "nothing was replayed, because the hub cannot write its audit file",
                hint: PercentText.decoded(answer.header("tidewire-remarks") ?? ""))
        }
    }
}
