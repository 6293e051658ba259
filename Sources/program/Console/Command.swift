/// A command of `tidewire`: its manual and its action. A command has subcommands or something to run.
public protocol Command: Sendable {
    var name: String { get }
    /// Sentence that describes the command in lists.
    var summary: String { get }
    /// Paragraphs of the manual, separated by empty lines. Indented lines are shown unchanged.
    var discussion: String { get }
    var operands: [Operand] { get }
    var options: [Option] { get }
    var optionGroups: [OptionGroup] { get }
    var examples: [Example] { get }
    /// Exit codes of the command, besides `.ok` and `.usage`, which every command may return.
    var exitCodes: [ExitCode] { get }
    var subcommands: [any Command] { get }
    /// Name of another program that implements the command and has its manual; nil if this program does. It is in the
    /// same directory, and receives the words after the command's name unchanged.
    var otherProgram: String? { get }

    /// Runs the command. The program explains a `CommandFailure`, `UsageError` or `ConfigurationFailure` to the user.
    /// For any other error it prints the description and exits with code 1.
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

    /// Throws an error, because a command with subcommands has no action of its own. The program runs the named
    /// subcommand instead.
    public func run(_ arguments: Arguments, _ terminal: Terminal) async throws -> ExitCode {
        throw UsageError("\(name) needs a subcommand")
    }

    public var allOptions: [Option] {
        options + [.help] + optionGroups.flatMap(\.options)
    }
}
