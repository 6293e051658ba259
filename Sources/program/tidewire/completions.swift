import Console

/// Command `tidewire completions`: prints the completion script of a shell.
struct CompletionsCommand: Command {
    let name = "completions"
    let summary = "Print a script that completes command lines in bash, zsh or fish."
    let discussion = """
        Prints a script for the shell. The script asks this program which words may follow, so it stays correct when \
        the program is updated. The Debian package installs all three scripts.
        """
    let operands = [Operand("bash|zsh|fish", .one, "The shell.")]
    let examples = [
        Example("source <(tidewire completions bash)", "Only in this shell:"),
        Example("tidewire completions zsh > ~/.zfunc/_tidewire", "Permanently, if fpath has ~/.zfunc:"),
        Example("tidewire completions fish > ~/.config/fish/completions/tidewire.fish", "Permanently:"),
    ]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        guard let shell = arguments.operands.first.flatMap(Shell.init(rawValue:)) else {
            throw UsageError("there are completions for \(Shell.allCases.map(\.rawValue).joined(separator: ", "))")
        }
        try terminal.write(Array(shell.completionScript.utf8))
        return .ok
    }
}
