import Policy
import Postgres

/// Body of a function as its author wrote it, before PostgreSQL has parsed it.
struct FunctionBody {
    var text: String
    /// True if PostgreSQL stored the body parsed, with every name fully qualified.
    var isResolved: Bool
    /// Search path of the function; nil if it runs with its caller's.
    var searchPath: String?
    /// `NULL::uuid AS "team"` for each argument; empty without arguments.
    var arguments: String
    /// Unquoted names of `$1` and so on among `arguments`.
    var argumentNames: [String]

    /// Returns a trial of the body for each search path that may apply. All of them must have the same outcome.
    func trials(_ function: FunctionRow, _ searchPaths: [String]) -> [ViewTrial] {
        guard let body = numbered(function.name.name) else { return [] }
        let query = (function.returnsSet ? "SELECT ARRAY(\n" : "SELECT (\n") + body + "\n) AS result"
        let companion =
            arguments.isEmpty
            ? nil : ViewTrial.Companion(name: function.name.name, query: "SELECT " + arguments, finalName: "argument")
        let paths = isResolved ? ["pg_catalog"] : searchPath.map { [$0] } ?? searchPaths
        return paths.map { ViewTrial(searchPath: $0, companion: companion, query: query) }
    }

    /// Returns the view's text without the relation of the arguments; the compiler knows their names.
    static func canonical(_ view: String) -> String {
        let suffix = "\n   FROM argument;"
        return view.hasSuffix(suffix) ? String(view.dropLast(suffix.count)) : view
    }

    /// Returns the body with `$1` and so on replaced by columns of the arguments' relation. Nil if it is uncertain
    /// where string literals begin and end.
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
                // An escape, if the string allows any, may hide the string's end.
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
