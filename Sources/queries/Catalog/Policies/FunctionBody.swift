import Policy
import Postgres

/// A function's body as its author wrote it, on its way to what PostgreSQL reads in it.
struct FunctionBody {
    var text: String
    /// Written with every name in full already, by PostgreSQL.
    var isResolved: Bool
    /// Nil: the caller's own.
    var searchPath: String?
    /// `NULL::uuid AS "team"` for each argument; empty without arguments.
    var arguments: String
    /// What `$1` and so on are called among `arguments`, not quoted.
    var argumentNames: [String]

    /// The texts under the search paths that may count: they have to come to the same.
    func trials(_ function: FunctionRow, _ searchPaths: [String]) -> [ViewTrial] {
        guard let body = numbered(function.name.name) else { return [] }
        let query = (function.returnsSet ? "SELECT ARRAY(\n" : "SELECT (\n") + body + "\n) AS result"
        let companion =
            arguments.isEmpty
            ? nil : ViewTrial.Companion(name: function.name.name, query: "SELECT " + arguments, finalName: "argument")
        let paths = isResolved ? ["pg_catalog"] : searchPath.map { [$0] } ?? searchPaths
        return paths.map { ViewTrial(searchPath: $0, companion: companion, query: query) }
    }

    /// The view's text without the relation that the arguments came from: its names are known to whoever reads it.
    static func canonical(_ view: String) -> String {
        let suffix = "\n   FROM argument;"
        return view.hasSuffix(suffix) ? String(view.dropLast(suffix.count)) : view
    }

    /// With `$1` as a column of the relation that the arguments come from; nil where it is not certain what is a text and
    /// what is not.
    private func numbered(_ function: String) -> String? {
        var body = text[...]
        while let last = body.last, last.isWhitespace || last == ";" { body.removeLast() }
        guard body.utf8.contains(UInt8(ascii: "$")) else { return String(body) }
        var result = ""
        var rest = body
        while let next = rest.first {
            switch next {
            case "'", "\"":
                guard let end = rest.dropFirst().firstIndex(of: next) else { return nil }
                let piece = rest[...end]
                // An escape, where strings have any, may hide the end.
                if piece.contains("\\") { return nil }
                result += piece
                rest = rest[rest.index(after: end)...]
            case "-" where rest.hasPrefix("--"), "/" where rest.hasPrefix("/*"): return nil
            case "$":
                let digits = rest.dropFirst().prefix { $0.isASCII && $0.isNumber }
                guard let number = Int(digits), argumentNames.indices.contains(number - 1) else { return nil }
                result += Quoted.identifier(function) + "." + Quoted.identifier(argumentNames[number - 1])
                rest = rest.dropFirst(digits.count + 1)
            default:
                result.append(next)
                rest = rest.dropFirst()
            }
        }
        return result
    }
}
