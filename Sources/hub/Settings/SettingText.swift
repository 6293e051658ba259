import Auth
import Bytes
import Diagnostics

/// Words for a Bool. PostgreSQL accepts unambiguous beginnings of these words. The hub accepts whole words only, to
/// find typing errors.
enum BooleanText {
    static func read(_ text: String) -> Bool? {
        switch text.lowercased() {
        case "on", "true", "yes", "1": true
        case "off", "false", "no", "0": false
        default: nil
        }
    }
}

enum ChoiceText {
    static func read(_ text: String, _ words: [String], _ synonyms: [String: String]) -> String? {
        let word = text.lowercased()
        return words.contains(word) ? word : synonyms[word]
    }
}

enum ClaimText {
    static func read(_ text: String) -> ClaimExpectations? {
        let bytes = Array(text.utf8)
        // SAFETY: any byte is a valid UInt8, and the span lives for the call.
        return unsafe try? ClaimExpectations.parse(bytes.span.bytes)
    }
}

public enum IdentifierText {
    /// True for a valid slot name, as in PostgreSQL's `ReplicationSlotValidateName`: lower case letters, digits and
    /// underscores, shorter than NAMEDATALEN.
    public static func isSlotName(_ text: String) -> Bool {
        isIdentifier(text)
            && text.utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"):
                    true
                default: false
                }
            }
    }

    public static func isIdentifier(_ text: String) -> Bool {
        !text.isEmpty && text.utf8.count <= Limits.maximumIdentifierBytes && !text.utf8.contains(0)
    }
}

/// Number followed by its unit, as in `1.5GB`. Like PostgreSQL, the hub allows spaces between them.
private struct Quantity {
    let number: Double
    let unit: String

    init?(_ text: String) {
        let digits = text.prefix { $0.isASCII && ($0.isNumber || $0 == ".") }
        guard let number = Double(digits), number.isFinite else { return nil }
        self.number = number
        self.unit = String(text.dropFirst(digits.count).drop { $0 == " " })
    }
}

/// Reader and writer of sizes in PostgreSQL's form: units are case-sensitive and multiples of 1024. A number without a
/// unit counts bytes.
public enum SizeText {
    private static let units: [(name: String, bytes: Int64)] = [
        ("TB", 1 << 40), ("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10), ("B", 1),
    ]

    static func read(_ text: String) -> Int64? {
        guard let quantity = Quantity(text) else { return nil }
        let unit = quantity.unit.isEmpty ? "B" : quantity.unit
        guard let (_, bytes) = units.first(where: { $0.name == unit }) else { return nil }
        return Int64(exactly: (quantity.number * Double(bytes)).rounded())
    }

    /// Returns the size as text, in the largest unit that needs no fraction.
    public static func write(_ bytes: Int64) -> String {
        guard bytes != 0, let unit = units.first(where: { bytes % $0.bytes == 0 }) else { return "0" }
        return "\(bytes / unit.bytes)\(unit.name)"
    }
}

/// Reader and writer of durations in PostgreSQL's form. A number without a unit is refused unless it is 0, because its
/// unit would be unclear.
public enum DurationText {
    private static let units: [(name: String, milliseconds: Int64)] = [
        ("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1),
    ]

    static func read(_ text: String) -> Duration? {
        if text == "0" { return .zero }
        guard let quantity = Quantity(text),
            let (_, milliseconds) = units.first(where: { $0.name == quantity.unit })
        else { return nil }
        return Int64(exactly: (quantity.number * Double(milliseconds)).rounded()).map { .milliseconds($0) }
    }

    public static func write(_ duration: Duration) -> String {
        let milliseconds = duration.wholeMilliseconds
        guard milliseconds != 0, let unit = units.first(where: { milliseconds % $0.milliseconds == 0 }) else {
            return "0"
        }
        return "\(milliseconds / unit.milliseconds)\(unit.name)"
    }
}

extension Duration {
    fileprivate var wholeMilliseconds: Int64 {
        let (seconds, attoseconds) = components
        return seconds * 1000 + attoseconds / 1_000_000_000_000_000
    }
}
