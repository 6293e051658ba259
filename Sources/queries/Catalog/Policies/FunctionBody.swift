import Policy
import Postgres

/// Body of an SQL function, in its author's text or as PostgreSQL stored it.
struct FunctionBody {
    var text: String
    /// True if PostgreSQL stores the body in parsed form, so that every name is fully qualified.
    var isResolved: Bool
    /// Search path of the function; nil if it uses the caller's.
    var searchPath: String?
    /// Argument list as output columns, such as `NULL::uuid AS "team"`; empty if there are no arguments.
    var arguments: String
    /// Unquoted names in `arguments`, in the order of `$1` and so on.
    var argumentNames: [String]

    /// Returns a trial of the body for each search path that may apply. The body is usable only if all trials have the
    /// same outcome.
    func trials(_ function: FunctionRow, _ searchPaths: [String]) -> [ViewTrial] {
        guard let body = numbered(function.name.name) else { return [] }
        let query = (function.returnsSet ? "SELECT ARRAY(\n" : "SELECT (\n") + body + "\n) AS result"
        let companion =
            arguments.isEmpty
            ? nil : ViewTrial.Companion(name: function.name.name, query: "SELECT " + arguments, finalName: "argument")
        let paths = isResolved ? ["pg_catalog"] : searchPath.map { [$0] } ?? searchPaths
        return paths.map { ViewTrial(searchPath: $0, companion: companion, query: query) }
    }

    /// Returns the view's text without the FROM clause that stands for the function's arguments. The compiler knows
    /// their names.
    static func canonical(_ view: String) -> String {
        let suffix = "\n   FROM argument;"
        return view.hasSuffix(suffix) ? String(view.dropLast(suffix.count)) : view
    }

    /// Returns the body with `$1` and so on replaced by the names of the arguments. Nil if it is uncertain where string
    /// literals begin and end.
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
                // A backslash may be an escape, so that the quote does not end the string.
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
