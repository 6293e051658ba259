import Console

/// Command `tidewire completions`.
struct CompletionsCommand: Command {
    let name = "completions"
    let summary = "Print what completes command lines in bash, zsh or fish."
    let discussion = """
        Prints a script for the shell. It asks this program what may follow, so it stays right when the program is \
        replaced. The package for Debian installs all three.
        """
    let operands = [Operand("bash|zsh|fish", .one, "The shell.")]
    let examples = [
        Example("source <(tidewire completions bash)", "In this shell:"),
        Example("tidewire completions zsh > ~/.zfunc/_tidewire", "For good, where fpath has ~/.zfunc:"),
        Example("tidewire completions fish > ~/.config/fish/completions/tidewire.fish", "For good:"),
    ]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        guard let shell = arguments.operands.first.flatMap(Shell.init(rawValue:)) else {
            throw UsageError("there are completions for \(Shell.allCases.map(\.rawValue).joined(separator: ", "))")
        }
        try terminal.write(Array(shell.completionScript.utf8))
        return .ok
    }
}
