/// One thing `tidewire` can do: its manual and its deed. A command has subcommands or something to run.
public protocol Command: Sendable {
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
    /// The program that does it, if this one does not: it lies in the same directory, is given the words after the
    /// command's name as they are, and has the manual.
    var otherProgram: String? { get }

    /// Errors that are a `CommandFailure`, a `UsageError` or a `ConfigurationFailure` are explained to the user; of any
    /// other error the description is shown, and the exit code is 1.
    func run(_ arguments: Arguments, _ terminal: Terminal) async throws -> ExitCode
}

public struct Example: Sendable {
    public let command: String
    public let explanation: String

    public init(_ command: String, _ explanation: String) {
        self.command = command
        self.explanation = explanation
    }
}

extension Command {
    public var operands: [Operand] { [] }
    public var options: [Option] { [] }
    public var optionGroups: [OptionGroup] { [] }
    public var examples: [Example] { [] }
    public var exitCodes: [ExitCode] { [] }
    public var subcommands: [any Command] { [] }
    public var otherProgram: String? { nil }

    /// For a command that only holds others; those are found before this is called.
    public func run(_ arguments: Arguments, _ terminal: Terminal) async throws -> ExitCode {
        throw UsageError("\(name) needs a subcommand")
    }

    public var allOptions: [Option] {
        options + [.help] + optionGroups.flatMap(\.options)
    }
}
