/// Manual of a command for `--help`, in the order and with the headings of a man page.
public struct ManualPage {
    private let command: any Command
    private let path: [String]

    public init(_ command: any Command, path: [String]) {
        self.command = command
        self.path = path
    }

    private static let width = 78
    private static let indent = "    "

    public var text: String {
        var sections = [
            section("NAME", "\(fullName) - \(command.summary)"),
            section("SYNOPSIS", synopsis),
            section("DESCRIPTION", command.discussion),
        ]
        sections += listed("COMMANDS", command.subcommands.map { ($0.name, $0.summary) })
        sections += listed("OPERANDS", command.operands.map { ($0.name, $0.help) })
        sections += listed("OPTIONS", (command.options + [.help]).map { ($0.synopsis, $0.help) })
        for group in command.optionGroups {
            let note = group.note.map { [section(group.title.uppercased(), $0)] }
            let options = Self.list(group.options.map { ($0.synopsis, $0.help) }, indent: Self.indent)
            sections.append((note ?? [group.title.uppercased()]).joined() + "\n\n" + options)
        }
        sections += examples
        sections.append(exitStatus)
        return sections.joined(separator: "\n\n")
    }

    private var fullName: String {
        (["tidewire"] + path).joined(separator: " ")
    }

    private var synopsis: String {
        if !command.subcommands.isEmpty { return "\(fullName) COMMAND [ARGUMENT...]" }
        return ([fullName, "[OPTION...]"] + command.operands.map(\.synopsis)).joined(separator: " ")
    }

    private var examples: [String] {
        guard !command.examples.isEmpty else { return [] }
        let paragraphs = command.examples.map { "\($0.explanation)\n\n    \($0.command)" }
        return [section("EXAMPLES", paragraphs.joined(separator: "\n\n"))]
    }

    private var exitStatus: String {
        let codes = Set(command.exitCodes + [.ok, .usage]).sorted { $0.rawValue < $1.rawValue }
        return "EXIT STATUS\n" + Self.list(codes.map { (String($0.rawValue), $0.meaning) }, indent: Self.indent)
    }

    private func listed(_ title: String, _ items: [(String, String)]) -> [String] {
        items.isEmpty ? [] : [title + "\n" + Self.list(items, indent: Self.indent)]
    }

    private func section(_ title: String, _ body: String) -> String {
        let lines = Self.wrapped(body, width: Self.width - Self.indent.count)
        return ([title] + lines.map { $0.isEmpty ? "" : Self.indent + $0 }).joined(separator: "\n")
    }

    /// Returns a list with terms on the left and their meanings beside them, or below a term that is too long.
    public static func list(_ items: [(term: String, meaning: String)], indent: String = "  ") -> String {
        let longest = 22
        let column = min(longest, items.map(\.term.count).max() ?? 0)
        let margin = indent + String(repeating: " ", count: column + 2)
        let lines = items.flatMap { item -> [String] in
            let meaning = wrapped(item.meaning, width: width - margin.count)
            guard item.term.count <= column else { return [indent + item.term] + meaning.map { margin + $0 } }
            let term = indent + item.term + String(repeating: " ", count: column + 2 - item.term.count)
            return [term + (meaning.first ?? "")] + meaning.dropFirst().map { margin + $0 }
        }
        return lines.joined(separator: "\n")
    }

    /// Returns the text with lines filled up to a width. Empty and indented lines stay unchanged.
    public static func wrapped(_ text: String, width: Int) -> [String] {
        var lines: [String] = []
        var isOpen = false
        for line in text.split(separator: "\n", omittingEmptySubsequences: false) {
            guard !line.isEmpty, !line.hasPrefix(" ") else {
                lines.append(String(line))
                isOpen = false
                continue
            }
            for word in line.split(separator: " ") {
                if isOpen, let last = lines.last, last.count + 1 + word.count <= width {
                    lines[lines.count - 1] = last + " " + word
                } else {
                    lines.append(String(word))
                    isOpen = true
                }
            }
        }
        return lines
    }
}
