import Bytes
import Console
import Projects
import Settings

/// Command `tidewire log ask`: answers several questions to a log in one process. A hub starts it for its API.
struct LogAskCommand: Command {
    let name = "ask"
    let summary = "Answer several questions in one process, for the hub's API."
    let discussion = """
        Each QUESTION is a JSON array with the words of a command that reads a log. The commands run one after the \
        other, each as if it had been called alone. A hub calls this for a request with several questions (POST \
        /api/tenants/ID/log).

        JSON. One object a question, in order: command, exit_code, output, remarks.
        """
    let operands = [Operand("QUESTION", .any, "The words of a command, as a JSON array.")]
    let examples = [
        Example(#"tidewire log ask '["stats","--json"]' '["log","info"]'"#, "Two answers of one process:")
    ]

    func run(_ arguments: Arguments, _ terminal: Terminal) async throws -> ExitCode {
        let questions = try arguments.operands.map { try Self.words($0) }
        for words in questions {
            let result = await InnerCommand.run(words, terminal)
            var line = JSONLine()
            line.add("command", words.prefix(words[0] == "log" ? 2 : 1).joined(separator: " "))
            line.add("exit_code", Int(result.code.rawValue))
            line.add("output", result.output)
            line.add("remarks", result.remarks)
            try terminal.print(line.text)
            try terminal.flush()
        }
        return .ok
    }

    /// Parses a question, a JSON array of a command and its arguments. Throws for a command that the operators' API
    /// does not offer.
    private static func words(_ text: String) throws(UsageError) -> [String] {
        guard let words = read(text), let first = words.first else {
            throw UsageError("QUESTION \(text.prefix(80)): expected a JSON array of texts")
        }
        let name = first == "log" ? words.dropFirst().first ?? "" : first
        guard LogQuestion.commands[name] != nil, LogQuestion.ofLog.contains(name) == (first == "log"), name != "bundle"
        else { throw UsageError("QUESTION \(text.prefix(80)): \(first) is not asked here") }
        return words
    }

    /// Returns the texts in a JSON array; nil if it is no such array.
    private static func read(_ text: String) -> [String]? {
        let bytes = Array(text.utf8)
        var scanner = JSONScanner(bytes.rawBytes, maximumDepth: 2)
        do throws(ByteError) {
            guard try scanner.next() == .beginArray else { return nil }
            var words: [String] = []
            while true {
                switch try scanner.next() {
                case .string: words.append(scanner.text)
                case .endArray: return try scanner.next() == .end ? words : nil
                default: return nil
                }
            }
        } catch {
            return nil
        }
    }
}
