import Console

/// Command of this program that another command runs in the same process, with its output kept in memory.
enum InnerCommand {
    struct Result {
        let code: ExitCode
        let output: String
        let remarks: String
    }

    static func run(_ words: [String], _ terminal: Terminal) async -> Result {
        let (output, remarks) = (Captured(), Captured())
        let inner = Terminal(
            width: nil, surroundings: terminal.surroundings, output: { output.bytes += $0 },
            errors: { remarks.bytes += $0 })
        let code = await Program(commands: allCommands).run(words, inner)
        return Result(
            code: code, output: String(decoding: output.bytes, as: UTF8.self),
            remarks: String(decoding: remarks.bytes, as: UTF8.self))
    }

    /// Bytes that a command wrote to one of its outputs, kept in memory.
    private final class Captured {
        var bytes: [UInt8] = []
    }
}
