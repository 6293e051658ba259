import Auth
import Diagnostics

/// Parser of the setting `api_keys`: `KEY = ROLE` or `KEY = TOKEN`, on separate lines or separated by commas. `#`
/// begins a comment.
enum OpaqueKeyList {
    /// Mistake in a list of keys. Its message contains no key, because keys are secrets.
    struct Mistake: Error, Equatable {
        let message: String
    }

    static func parse(_ text: String) throws(Mistake) -> [String: OpaqueKey] {
        var keys: [String: OpaqueKey] = [:]
        for (index, entry) in entries(text).enumerated() {
            let (key, meaning) = try pair(entry, number: index + 1)
            guard keys.updateValue(meaning, forKey: key) == nil else {
                throw Mistake(message: "entry \(index + 1) names a key that was named before")
            }
            guard keys.count <= Limits.maximumOpaqueKeys else {
                throw Mistake(message: "there are more than \(Limits.maximumOpaqueKeys) keys")
            }
        }
        return keys
    }

    private static func entries(_ text: String) -> [Substring] {
        text.split(whereSeparator: \.isNewline)
            .flatMap { line in line.prefix { $0 != "#" }.split(separator: ",") }
            .map(trimmed).filter { !$0.isEmpty }
    }

    private static func pair(_ entry: Substring, number: Int) throws(Mistake) -> (String, OpaqueKey) {
        let parts = entry.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(trimmed)
        guard parts.count == 2, isKey(parts[0]), isMeaning(parts[1]) else {
            throw Mistake(message: "entry \(number) is not KEY = ROLE or KEY = TOKEN, with a key that begins with sb_")
        }
        return (String(parts[0]), OpaqueKey(String(parts[1])))
    }

    private static func isKey(_ text: Substring) -> Bool {
        text.hasPrefix("sb_") && text.utf8.count <= Limits.maximumTokenBytes && !text.contains(where: \.isWhitespace)
    }

    private static func isMeaning(_ text: Substring) -> Bool {
        let longest = text.contains(".") ? Limits.maximumTokenBytes : Limits.maximumIdentifierBytes
        return !text.isEmpty && text.utf8.count <= longest && !text.utf8.contains(0)
            && !text.contains(where: \.isWhitespace)
    }

    private static func trimmed(_ text: Substring) -> Substring {
        let start = text.drop(while: \.isWhitespace)
        guard let end = start.lastIndex(where: { !$0.isWhitespace }) else { return "" }
        return start[...end]
    }
}
