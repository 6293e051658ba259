/// Text in the language of man pages, man(7). In this language, backslashes and some characters at the beginning of a
/// line have a special meaning.
struct Roff {
    private(set) var text = ""

    init(title: String, section: Int, version: String) {
        line(".TH \"\(title.uppercased())\" \(section) \"\" \"\(version)\" \"Tidewire\"")
    }

    mutating func heading(_ title: String) {
        line(".SH \(Self.escaped(title.uppercased()))")
    }

    /// Adds paragraphs, separated by empty lines. Indented lines are shown unchanged.
    mutating func paragraphs(_ text: String) {
        var isAsItIs = false
        for part in text.split(separator: "\n", omittingEmptySubsequences: false) {
            let isIndented = part.hasPrefix(" ")
            if isIndented != isAsItIs {
                line(isIndented ? ".PP\n.RS 4\n.nf" : ".fi\n.RE")
                isAsItIs = isIndented
            }
            line(part.isEmpty ? ".PP" : Self.escaped(part.drop { $0 == " " }))
        }
        if isAsItIs { line(".fi\n.RE") }
    }

    /// Adds a term and its meaning.
    mutating func item(_ term: String, _ meaning: String) {
        line(".TP\n\\fB\(Self.escaped(term))\\fR")
        line(Self.escaped(meaning))
    }

    mutating func bold(_ words: String, then rest: String = "") {
        line("\\fB\(Self.escaped(words))\\fR\(rest.isEmpty ? "" : " " + Self.escaped(rest))")
    }

    mutating func plain(_ text: String) {
        line(Self.escaped(text))
    }

    private mutating func line(_ line: String) {
        text += line + "\n"
    }

    /// Returns the text with escape sequences for the characters that groff would otherwise replace by typographic
    /// dashes, quotes and carets.
    static func escaped(_ text: some StringProtocol) -> String {
        let signs: [Character: String] = [
            "\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti",
        ]
        let escaped = text.reduce(into: "") { $0 += signs[$1] ?? String($1) }
        return escaped.hasPrefix(".") ? "\\&" + escaped : escaped
    }
}
