/// As what a command prints its rows.
public enum OutputForm: String, Sendable, CaseIterable {
    /// Aligned columns, for people.
    case table
    /// One object a line, which commands write themselves.
    case json
    /// RFC 4180: for spreadsheets and databases.
    case csv
    /// A table for tickets and documents.
    case markdown = "md"
}

extension Option {
    public static let output = Option.value(
        "output", "FORM", short: "o",
        "table (default), json (as --json), csv or md. As csv and md rows alone are printed, with whole values; what else there "
            + "is to say goes to stderr.")

    /// For commands that print rows.
    public static let forms: [Option] = [.output, .json]
}

extension Arguments {
    /// What `--output` and `--json` say; `--json` stands for either.
    mutating func takeForm() throws(UsageError) -> OutputForm {
        guard let word = value(of: .output) else { return has(.json) ? .json : .table }
        guard let form = OutputForm(rawValue: word.lowercased()) else {
            throw UsageError("--output \(word): expected table, json, csv or md")
        }
        guard form == .json || !has(.json) else {
            throw UsageError("--json and --output \(word) are two forms: give one")
        }
        if form == .json { give(.json, "true") }
        return form
    }
}

/// Cells as a row of one form.
enum RowText {
    /// A spreadsheet takes a text that begins so for a formula; those of numbers are none.
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

    /// What would be read as more than itself.
    private static let signs: Set<Character> = ["\\", "|", "`", "*", "_", "<", "[", "&"]

    static func markdownRule(_ columns: [Table.Column]) -> String {
        "| " + columns.map { $0.alignment == .right ? "---:" : "---" }.joined(separator: " | ") + " |"
    }
}
