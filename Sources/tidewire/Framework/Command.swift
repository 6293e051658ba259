/// One thing `tidewire` can do: its manual and its deed. A command has subcommands or something to run.
protocol Command: Sendable {
    var name: String { get }
    /// One sentence, for lists.
    var summary: String { get }
    /// Paragraphs, separated by empty lines; an indented line is shown as it is.
    var discussion: String { get }
    var operands: [Operand] { get }
    var options: [Option] { get }
    var optionGroups: [OptionGroup] { get }
    var examples: [Example] { get }
    /// The codes it may end with, besides `.ok` and `.usage`, which every command may.
    var exitCodes: [ExitCode] { get }
    var subcommands: [any Command] { get }

    /// Errors that are a `CommandFailure`, a `UsageError` or a `ConfigurationFailure` are explained to the user; of any
    /// other error the description is shown, and the exit code is 1.
    func run(_ arguments: Arguments, _ terminal: Terminal) async throws -> ExitCode
}

struct Example: Sendable {
    let command: String
    let explanation: String

    init(_ command: String, _ explanation: String) {
        self.command = command
        self.explanation = explanation
    }
}

extension Command {
    var operands: [Operand] { [] }
    var options: [Option] { [] }
    var optionGroups: [OptionGroup] { [] }
    var examples: [Example] { [] }
    var exitCodes: [ExitCode] { [] }
    var subcommands: [any Command] { [] }

    /// For a command that only holds others; those are found before this is called.
    func run(_ arguments: Arguments, _ terminal: Terminal) async throws -> ExitCode {
        throw UsageError("\(name) needs a subcommand")
    }

    var allOptions: [Option] {
        options + [.help] + optionGroups.flatMap(\.options)
    }
}
