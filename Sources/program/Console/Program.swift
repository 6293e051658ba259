import Settings
import System

/// The command-line program. It finds the command that the words name, runs the command and returns an exit code.
public struct Program {
    private let commands: [any Command]

    public init(commands: [any Command]) {
        self.commands = commands
    }

    public func run(_ words: [String], _ terminal: Terminal) async -> ExitCode {
        do {
            let exitCode = try await dispatch(words, terminal)
            try terminal.flush()
            return exitCode
        } catch OutputFailure.readerGone {
            // The reader has closed the pipe, as in `tidewire tail | head`. That is no failure.
            return .ok
        } catch {
            // Earlier output is flushed before the error message. A failure to print that output matters less than the
            // error itself.
            try? terminal.flush()
            return terminal.explain(error, prefix: Product.name)
        }
    }

    private func dispatch(_ words: [String], _ terminal: Terminal) async throws -> ExitCode {
        if let question = words.first.flatMap(ProgramQuestion.init(rawValue:)) {
            return try question.answer(words.dropFirst(), below: [], commands, terminal) {
                $0.first == "tidewire.conf" ? ManPage.configuration : ManPage.overview(commands)
            }
        }
        switch words.first {
        case nil, "-h", "--help": return try show(overview, terminal)
        case "help": return try showHelp(words.dropFirst(), terminal)
        case "--version": return try await dispatch(["version"] + words.dropFirst(), terminal)
        case .some(let word) where word.hasPrefix("-"):
            throw UsageError("\(word.prefix { $0 != "=" }) comes after a command; `tidewire help` lists them")
        default:
            let found = try Invocation.find(words[...], among: commands)
            return try await found.run(terminal)
        }
    }

    private func showHelp(_ words: ArraySlice<String>, _ terminal: Terminal) throws -> ExitCode {
        if words.isEmpty { return try show(overview, terminal) }
        let found = try Invocation.find(words, among: commands)
        if let other = found.command.otherProgram { try OtherProgram.takeOver(other, found.rest + ["--help"]) }
        guard found.rest.isEmpty else { throw UsageError("there is no command \(words.joined(separator: " "))") }
        return try show(ManualPage(found.command, path: found.path).text, terminal)
    }

    private func show(_ text: String, _ terminal: Terminal) throws -> ExitCode {
        try terminal.print(text)
        return .ok
    }

    private var overview: String {
        """
        tidewire - an event-sourced realtime hub for PostgreSQL

        Usage: tidewire COMMAND [ARGUMENT...]

        Commands:
        \(ManualPage.list(commands.map { ($0.name, $0.summary) }))

        `tidewire help COMMAND` or `tidewire COMMAND --help` shows a command's manual.
        """
    }
}

/// A command found by its path, such as `log verify`, with the words after it.
public struct Invocation {
    public let command: any Command
    public let path: [String]
    public let rest: ArraySlice<String>

    public static func find(
        _ words: ArraySlice<String>, among commands: [any Command], below parents: [String] = []
    ) throws(UsageError) -> Invocation {
        guard let name = words.first, let command = commands.first(where: { $0.name == name }) else {
            throw unknown(words.first ?? "", among: commands, below: parents)
        }
        let path = parents + [name]
        let rest = words.dropFirst()
        guard let next = rest.first, !command.subcommands.isEmpty, !next.hasPrefix("-") else {
            return Invocation(command: command, path: path, rest: rest)
        }
        return try find(rest, among: command.subcommands, below: path)
    }

    public func run(_ terminal: Terminal) async throws -> ExitCode {
        if let other = command.otherProgram { try OtherProgram.takeOver(other, rest) }
        if let question = rest.first.flatMap(ProgramQuestion.init(rawValue:)) {
            return try question.answer(rest.dropFirst(), below: path, command.subcommands, terminal) { _ in
                ManPage.of(command, path: path)
            }
        }
        if wantsHelp {
            try terminal.print(ManualPage(command, path: path).text)
            return .ok
        }
        do {
            var arguments = try ArgumentParser.parse(rest, options: command.allOptions, operands: command.operands)
            arguments.command = ([Product.name] + path).joined(separator: " ")
            terminal.form = try arguments.takeForm()
            return try await command.run(arguments, terminal)
        } catch let error as UsageError {
            let name = (["tidewire"] + path).joined(separator: " ")
            terminal.complain("\(name): \(error.message)")
            terminal.complain("`\(name) --help` shows how it is used.")
            return .usage
        }
    }

    /// True if the words contain `--help` or `-h`, even if other words are wrong. True also if a command with
    /// subcommands is given without one.
    private var wantsHelp: Bool {
        let isAsked = rest.prefix { $0 != "--" }.contains { $0 == "--help" || $0 == "-h" }
        return isAsked || (!command.subcommands.isEmpty && rest.isEmpty)
    }

    private static func unknown(_ name: String, among commands: [any Command], below parents: [String]) -> UsageError {
        let names = commands.map(\.name)
        let path = (["tidewire"] + parents).joined(separator: " ")
        let hint = NearestName.to(name, among: names).map { "; did you mean `\(path) \($0)`?" }
        return UsageError("there is no command \"\(name)\"\(hint ?? "; there are \(names.joined(separator: ", "))")")
    }
}

/// Question that packages and shells ask this program about itself. No manual lists these.
enum ProgramQuestion: String {
    /// Prints a page for man(1).
    case manual = "--man"
    /// Prints the paths of all commands, one per line.
    case commands = "--commands"
    /// Prints the candidates for the last word of a command line.
    case completion = "--complete"

    func answer(
        _ words: ArraySlice<String>, below path: [String], _ commands: [any Command], _ terminal: Terminal,
        manual: (ArraySlice<String>) -> String
    ) throws -> ExitCode {
        switch self {
        case .manual: try terminal.write(Array(manual(words).utf8))
        case .commands:
            for line in Self.paths(of: commands, below: path) { try terminal.print(line) }
        case .completion:
            switch Completion.answer(Array(words), among: commands, isWhole: path.isEmpty) {
            case .lines(let lines):
                for line in lines { try terminal.print(line) }
            case .other(let program, let words):
                try OtherProgram.takeOver(program, [rawValue] + words)
            }
        }
        return .ok
    }

    private static func paths(of commands: [any Command], below path: [String]) -> [String] {
        commands.flatMap { command in
            let own = path + [command.name]
            return [own.joined(separator: " ")] + paths(of: command.subcommands, below: own)
        }
    }
}

/// A program in the same directory that replaces this process.
enum OtherProgram {
    static func takeOver(_ name: String, _ words: ArraySlice<String>) throws(CommandFailure) -> Never {
        let path = OwnProgram.beside(name) ?? name
        do throws(SystemError) {
            try OwnProgram.become([path] + words)
        } catch {
            throw CommandFailure(
                .notFound, "cannot start \(path), which does this: \(error.reason)",
                hint: "build it beside tidewire with `swift build -c release --product \(name)`")
        }
    }
}

extension Terminal {
    /// Prints why the command failed, and returns the exit code for scripts.
    public func explain(_ error: any Error, prefix: String) -> ExitCode {
        switch error {
        case let failure as CommandFailure:
            complain("\(prefix): \(failure.message)")
            complain(failure.hint)
            return failure.exitCode
        case let failure as ConfigurationFailure:
            for problem in failure.problems { complain("\(prefix): \(problem)") }
            return .usage
        case let failure as UsageError:
            complain("\(prefix): \(failure.message)")
            return .usage
        default:
            complain("\(prefix): \(error)")
            return .notFound
        }
    }
}
