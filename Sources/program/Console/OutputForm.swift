/// Output format of a command's rows.
public enum OutputForm: String, Sendable, CaseIterable {
    /// Aligned columns, for people.
    case table
    /// One JSON object per line. Each command writes its own objects; `TableStream` does not format them.
    case json
    /// Comma-separated values by RFC 4180, for spreadsheets and databases.
    case csv
    /// Markdown table, for tickets and documents.
    case markdown = "md"
}

extension Option {
    public static let output = Option.value(
        "output", "FORM", short: "o",
        "table (default), json (as --json), csv or md. csv and md have only the rows, with whole values; everything else goes "
            + "to stderr.")

    /// Options of commands that print rows.
    public static let forms: [Option] = [.output, .json]
}

extension Arguments {
    /// Returns the format that `--output` or `--json` names. If it is JSON, also sets the flag `--json`.
    mutating func takeForm() throws(UsageError) -> OutputForm {
        guard let word = value(of: .output) else { return has(.json) ? .json : .table }
        guard let form = OutputForm(rawValue: word.lowercased()) else {
            throw UsageError("--output \(word): expected table, json, csv or md")
        }
        guard form == .json || !has(.json) else {
            throw UsageError("--json and --output \(word) exclude each other")
        }
        if form == .json { give(.json, "true") }
        return form
    }
}

/// Formatter of a row's cells as CSV or Markdown.
enum RowText {
    /// First characters by which a spreadsheet recognizes a formula. Numbers that begin with one are not formulas.
    private static let formulaSigns: [Character] = ["=", "+", "-", "@", "\t", "\r"]

    static func csv(_ cells: [String], _ columns: [Table.Column]) -> String {
        zip(cells, columns).map { cell, column in
            let isFormula = cell.first.map(formulaSigns.contains) ?? false
            let text = isFormula && Double(cell) == nil && cell != "-" ? "'" + cell : cell
            let isPlain =
                !text.contains { ["\"", ",", "\n", "\r", "\r\n"].contains($0) } && text.first != " " && text.last != " "
            return isPlain ? text : "\"" + text.replacing("\"", with: "\"\"") + "\""
        }.joined(separator: ",")
    }

    static func markdown(_ cells: [String]) -> String {
        "| "
            + cells.map { ScreenText.escaped($0).reduce(into: "") { $0 += signs.contains($1) ? "\\\($1)" : "\($1)" } }
            .joined(separator: " | ") + " |"
    }

    /// Characters with a special meaning in Markdown.
    private static let signs: Set<Character> = ["\\", "|", "`", "*", "_", "<", "[", "&"]

    static func markdownRule(_ columns: [Table.Column]) -> String {
        "| " + columns.map { $0.alignment == .right ? "---:" : "---" }.joined(separator: " | ") + " |"
    }
}
