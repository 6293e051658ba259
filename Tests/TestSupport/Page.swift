import Foundation

/// Page of the documentation (README or a file in `docs/`): its code blocks, its links, and the names that it uses.
public struct Page: Sendable, CustomStringConvertible {
    /// Fenced code block, with the note in the comment above it.
    public struct Block: Sendable, CustomStringConvertible {
        public enum Note: Sendable, Equatable {
            /// `<!-- runs -->`, or `<!-- runs on a plain database -->`.
            case runs(on: String)
            /// `<!-- not run: why -->`
            case notRun(why: String)
        }

        public let page: String
        public let line: Int
        public let language: String
        public let text: String
        public let note: Note?

        public var description: String { "\(page):\(line)" }
    }

    /// Path from the root of the sources.
    public let path: String
    public let blocks: [Block]
    /// Text of the page without its blocks.
    public let prose: String

    public var description: String { path }

    public init(path: String, text: String) {
        var reader = PageReader(path: path)
        for line in text.split(separator: "\n", omittingEmptySubsequences: false) { reader.take(String(line)) }
        self.path = path
        blocks = reader.finish()
        prose = reader.prose.joined(separator: "\n")
    }

    /// Texts between backticks on the page.
    public var quoted: [String] {
        prose.matches(of: /`([^`]+)`/).map {
            $0.1.split(whereSeparator: \.isWhitespace).joined(separator: " ").replacing("\\|", with: "|")
        }
    }

    public var links: [String] { prose.matches(of: /\]\(([^)\s]+)\)/).map { String($0.1) } }

    /// Anchors of the page's headings, as GitHub makes them.
    public var anchors: Set<String> {
        Set(
            prose.split(separator: "\n").filter { $0.hasPrefix("#") }.map { heading in
                let title = heading.drop { $0 == "#" }.replacing(/\[([^\]]*)\]\([^)]*\)/) { $0.1 }
                let kept = title.lowercased().filter { $0.isLetter || $0.isNumber || " -_".contains($0) }
                return kept.trimmingCharacters(in: .whitespaces).replacing(" ", with: "-")
            })
    }
}

private struct PageReader {
    let path: String
    var prose: [String] = []
    private var blocks: [Page.Block] = []
    private var number = 0
    private var note: Page.Block.Note?
    private var open: (line: Int, language: String, lines: [String])?

    init(path: String) { self.path = path }

    mutating func take(_ line: String) {
        number += 1
        if line.hasPrefix("```") {
            fence(line)
        } else if open != nil {
            open?.lines.append(line)
        } else {
            prose.append(line)
            if let said = Self.note(of: line) { note = said } else if !line.isEmpty { note = nil }
        }
    }

    private mutating func fence(_ line: String) {
        guard let block = open else {
            open = (number, String(line.dropFirst(3)), [])
            return
        }
        blocks.append(
            Page.Block(
                page: path, line: block.line, language: block.language,
                text: block.lines.joined(separator: "\n") + "\n",
                note: note))
        (open, note) = (nil, nil)
    }

    private static func note(of line: String) -> Page.Block.Note? {
        if let match = line.wholeMatch(of: /<!-- runs(?: on (.+))? -->/) { return .runs(on: String(match.1 ?? "")) }
        return line.wholeMatch(of: /<!-- not run: (.+) -->/).map { .notRun(why: String($0.1)) }
    }

    /// Closes the page's last block. A block without an end counts as well, so that the mistake is noticed.
    mutating func finish() -> [Page.Block] {
        if open != nil { fence("```") }
        return blocks
    }
}

/// Commands of a shell script as lists of words. `$` and `*` are not expanded, because no page needs that.
public struct ShellCommands: Sequence {
    private var commands: [[String]] = []
    private var words: [String] = []
    private var word: String?
    private var quote: Character?

    public init(_ script: String) {
        var ending: String?
        for line in script.replacing("\\\n", with: " ").split(separator: "\n", omittingEmptySubsequences: false) {
            if let end = ending {
                if line == end { ending = nil }
                continue
            }
            take(line)
            ending = line.firstMatch(of: /<<'?(\w+)'?/).map { String($0.1) }
        }
        endCommand()
    }

    public func makeIterator() -> IndexingIterator<[[String]]> { commands.makeIterator() }

    private mutating func take(_ line: Substring) {
        var before: Character = " "
        for character in line {
            defer { before = character }
            if let open = quote {
                // A command inside quotes starts a new command: "$(tidewire …)".
                if open == "\"", before == "$", character == "(" {
                    quote = nil
                    endCommand()
                } else if character == open {
                    quote = nil
                } else {
                    word = (word ?? "") + String(character)
                }
                continue
            }
            switch character {
            case "'", "\"": (quote, word) = (character, word ?? "")
            case "#" where before == " ":
                endCommand()
                return
            case " ": endWord()
            case "|", ";", "&", "(", ")": endCommand()
            default: word = (word ?? "") + String(character)
            }
        }
        if quote == nil { endCommand() } else { word = (word ?? "") + "\n" }
    }

    private mutating func endWord() {
        defer { word = nil }
        guard let word else { return }
        // Redirections of input and output are no words of the command.
        if word.firstMatch(of: /^\d?[<>]/) != nil { return }
        let isBefore =
            words.isEmpty
            && (["until", "while", "do", "if", "then", "!", "export"].contains(word)
                || word.firstMatch(of: /^[A-Za-z_]+=/) != nil)
        if !isBefore { words.append(word) }
    }

    private mutating func endCommand() {
        endWord()
        if !words.isEmpty { commands.append(words) }
        words = []
    }
}
