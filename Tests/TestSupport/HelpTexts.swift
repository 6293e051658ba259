/// Check for faults in the help texts of metrics, which Prometheus and Grafana show one at a time.
public enum HelpTexts {
    /// Units in metric names, each with the word that the help text must contain.
    private static let units = [
        "bytes": "byte", "seconds": "second", "offset": "offset", "lsn": "position", "segments": "segment",
        "rows": "row",
    ]
    private static let fewestWords = 4

    /// Returns one line for each fault in the text that Prometheus scrapes.
    public static func faults(in exposition: String) -> [String] {
        var faults: [String] = []
        var names: [String: String] = [:]
        for line in exposition.split(separator: "\n") where line.hasPrefix("# HELP ") {
            let parts = line.dropFirst("# HELP ".count).split(separator: " ", maxSplits: 1)
            guard parts.count == 2 else {
                faults.append("\(line): there is no help")
                continue
            }
            let (name, help) = (String(parts[0]), String(parts[1]))
            if let other = names.updateValue(name, forKey: help) { faults.append("\(name): says what \(other) says") }
            faults += self.faults(of: name, help).map { "\(name): \($0): \(help)" }
        }
        return faults
    }

    private static func faults(of name: String, _ help: String) -> [String] {
        var faults: [String] = []
        let words = help.lowercased().split { !$0.isLetter && $0 != "'" }.map(String.init)
        if words.count < fewestWords { faults.append("too few words") }
        if !help.hasSuffix(".") { faults.append("no sentence") }
        // These words refer to another metric's help, which the reader does not see.
        let pointing = ["such", "these", "those", "same", "above", "below", "ditto"]
        if let first = words.first, ["it", "its", "they", "their", "so"].contains(first) {
            faults.append("begins with \(first)")
        }
        if let word = words.first(where: pointing.contains), !isExplained(word, words) {
            faults.append("points with \(word)")
        }
        for part in name.split(separator: "_") {
            guard let unit = units[String(part)], !words.contains(where: { $0.hasPrefix(unit) }) else { continue }
            faults.append("does not say \(unit)")
        }
        return faults
    }

    /// True for "those who", and for "these" before a noun that the sentence has already named.
    private static func isExplained(_ word: String, _ words: [String]) -> Bool {
        guard let place = words.firstIndex(of: word), place + 1 < words.count, place > 0 else { return false }
        return word == "those" && words[place + 1] == "who"
            || word == "these" && words[..<place].contains(words[place + 1])
            || word == "these" && place > 2
    }
}
