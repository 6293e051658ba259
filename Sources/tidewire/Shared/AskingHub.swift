import Bytes
import Calling
import Console
import Crypto
import Diagnostics
import Projects
import Settings
import System

/// For commands that read a log: the log of a hub that runs, asked by its operators' API.
extension Option {
    static let server = Option.value(
        "server", "URL",
        "Ask this hub, https://HOST, for its log instead of reading files; with --token, or OPERATOR_TOKEN in the environment."
    )
    static let token = Option.value(
        "token", "TOKEN", "The operator's token for --server; others of the machine see it: OPERATOR_TOKEN is better.")
    static let certificates = Option.value(
        "server-certificates", "FILE", "Certificates, in PEM, that are trusted for https beside the system's.")

    static let asking: [Option] = [.server, .token, .certificates]
}

enum AskingHelp {
    static let text = """
        --server URL asks a hub instead of files. Its answer is masked by the rules of its machine; what is unmasked is written \
        down there. It gives at most 4 MiB, within a minute.
        """
}

/// A hub that is asked by its operators' API.
struct AskedHub {
    private let request: HubRequest
    private let address: HubAddress
    private let project: String

    /// Nil where no hub is to be asked.
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
                "--server wants an operator's token: set OPERATOR_TOKEN in the environment, or give --token")
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

    func get(_ path: String) throws -> HubAnswer { try answer { try request.get(place(path), accepting: "*/*") } }

    func delete(_ path: String) throws -> HubAnswer {
        try answer { try request.delete(place(path), accepting: "*/*") }
    }

    func post(_ path: String, _ json: [UInt8]) throws -> HubAnswer {
        try answer { try request.post(place(path), json) }
    }

    private func place(_ path: String) -> String { "tenants/\(PercentText.encoded(project))/\(path)" }

    /// What the hub's command printed and said, as its own.
    func show(_ answer: HubAnswer, _ terminal: Terminal) throws -> ExitCode {
        try terminal.write(answer.body)
        try terminal.flush()
        let remarks = PercentText.decoded(answer.header("tidewire-remarks") ?? "")
        for line in remarks.split(separator: "\n") { terminal.complain(ScreenText.escaped(String(line))) }
        return answer.header("tidewire-exit-code").flatMap { Int32($0) }.flatMap { ExitCode(rawValue: $0) } ?? .ok
    }

    private func answer(_ ask: () throws -> HubAnswer) throws -> HubAnswer {
        let answer: HubAnswer
        do {
            answer = try ask()
        } catch let failure as HubFailure {
            throw CommandFailure(.unreachable, failure.description)
        }
        if answer.status == 200 { return answer }
        throw refusal(answer)
    }

    private func refusal(_ answer: HubAnswer) -> CommandFailure {
        let members = HubJSON(answer.body)?.members
        let said = members?["message"] ?? members?["error"]
        switch answer.status {
        case 400: return CommandFailure(.usage, said ?? "\(address) does not understand the question")
        case 401, 403:
            return CommandFailure(
                .unreachable, "\(address) does not take the token",
                hint: "It has to be signed with the hub's operator_jwt_secret, and may have expired.")
        case 404:
            return CommandFailure(
                .notFound, "\(address) has no project \(project), or does not answer questions to its log",
                hint: "--project names another one.")
        default: return CommandFailure(.unreachable, "\(address) answers: \(said ?? "HTTP \(answer.status)")")
        }
    }
}

extension Arguments {
    /// What a hub answers, where one is to be asked; its words and its exit code are the command's.
    func answer(_ command: String, options: [Option], _ terminal: Terminal) throws -> ExitCode? {
        guard let hub = try AskedHub(self, terminal) else { return nil }
        guard value(of: .log) == nil else { throw UsageError("--server asks a hub, and --log reads files") }
        let answer = try hub.get("log/\(command)?\(try query(command, options, terminal.form))")
        if command == "bundle" {
            try write(answer.body, terminal)
        } else {
            try terminal.write(answer.body)
        }
        try terminal.flush()
        let remarks = PercentText.decoded(answer.header("tidewire-remarks") ?? "")
        for line in remarks.split(separator: "\n") { terminal.complain(ScreenText.escaped(String(line))) }
        return answer.header("tidewire-exit-code").flatMap { Int32($0) }.flatMap { ExitCode(rawValue: $0) } ?? .ok
    }

    private func query(_ command: String, _ options: [Option], _ form: OutputForm) throws -> String {
        var items: [(String, String)] = []
        let names = LogQuestion.operands[command] ?? []
        for (place, operand) in operands.enumerated() where command != "bundle" {
            guard let name = place < names.count ? names[place] : names.last else { continue }
            items.append((name.hasSuffix("…") ? String(name.dropLast()) : name, operand))
        }
        // How the answer is to look was taken already.
        let local = Set(Option.asking.map(\.name) + ["project", "quiet", "output", "json"])
        if has(.json) { items.append(("json", "true")) }
        if form == .csv || form == .markdown { items.append(("output", form == .csv ? "csv" : "md")) }
        for option in options where !local.contains(option.name) {
            let values = values(of: option)
            if values.isEmpty { continue }
            guard LogQuestion.options.contains(option.name) else {
                throw UsageError("--\(option.name) is for files, and not asked of a hub")
            }
            items += values.map { (option.name, $0) }
        }
        return items.map { "\($0)=\(PercentText.encoded($1))" }.joined(separator: "&")
    }

    private func write(_ bytes: [UInt8], _ terminal: Terminal) throws {
        let path = operands[0]
        guard !path.isEmpty, !path.hasSuffix("/"), !Directories.isThere(path) else {
            throw UsageError("FILE \(path): expected a name that is free")
        }
        do throws(SystemError) {
            let name = path.split(separator: "/").last.map(String.init) ?? path
            let directory = try DiskDirectory(Directories.parent(of: try Directories.absolute(path)))
            let file = try directory.open(name, for: .creating)
            // SAFETY: any byte is a valid UInt8, and the array outlives the call.
            try file.write(unsafe bytes.span.bytes, at: 0)
            try file.sync()
        } catch {
            throw CommandFailure(.notFound, "the bundle cannot be written: \(error)")
        }
        try terminal.print("\(path): \(bytes.count) bytes; 'tidewire open \(path)' says more")
    }
}
