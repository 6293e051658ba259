import Policy
import TestSupport

/// Random values in addition to the hand-written ones. They are close to each other, so that equal pairs occur.
enum Generated {
    static func value(_ type: TypeFacts, _ random: inout SeededRandom) -> String? {
        switch type.shape {
        case .array(let element): array(element, &random)
        case .base: base(type.oid, &random)
        case .enumeration(let labels): random.pick(labels)
        case .other: nil
        }
    }

    private static func base(_ oid: UInt32, _ random: inout SeededRandom) -> String? {
        switch oid {
        case 16: random.pick(["t", "f"])
        case 21, 23, 20: String(integer(&random, 1 << random.pick([2, 8, 14])))
        case 26: String(integer(&random, 1 << 10).magnitude)
        case 1700, 701, 700: decimal(&random)
        case 25, 1043, 19: word(&random)
        case 1042: word(&random) + random.pick(["", " ", "  "])
        case 17:
            "\\x" + (0..<integer(&random, 3).magnitude).map { _ in random.pick(["00", "01", "7f", "ff"]) }.joined()
        case 1082: date(&random)
        case 1114: date(&random, clock(&random))
        case 1184: date(&random, clock(&random) + zone(&random))
        case 1083: clock(&random)
        case 1266: clock(&random) + zone(&random)
        case 1186: interval(&random)
        case 2950: uuid(&random)
        case 3802: json(&random, depth: 3)
        case 1560: bits(&random, atLeast: 1)
        case 1562: bits(&random, atLeast: 0)
        default: nil
        }
    }

    private static func integer(_ random: inout SeededRandom, _ bound: Int) -> Int {
        Int.random(in: -bound...bound, using: &random)
    }

    private static func digits(_ random: inout SeededRandom, upTo count: Int) -> String {
        (0..<Int.random(in: 1...count, using: &random)).map { _ in random.pick(["0", "0", "1", "9", "5"]) }.joined()
    }

    private static func decimal(_ random: inout SeededRandom) -> String {
        let whole = random.pick(["", "-"]) + digits(&random, upTo: 4)
        return random.pick([true, false]) ? whole : whole + "." + digits(&random, upTo: 4)
    }

    private static func word(_ random: inout SeededRandom) -> String {
        (0..<Int.random(in: 0...4, using: &random)).map { _ in
            random.pick(["a", "b", "A", "%", "_", "\\", " ", "ä", "Ä", "Б", "日", "😀", "\"", ","])
        }.joined()
    }

    private static func padded(_ number: Int, _ width: Int = 2) -> String {
        let text = String(number)
        return String(repeating: "0", count: max(0, width - text.count)) + text
    }

    private static func date(_ random: inout SeededRandom, _ clock: String = "") -> String {
        let year = random.pick([1, 4, 44, 100, 400, 1900, 1970, 1999, 2000, 2024, 2026, 9999, 10000, 294_000])
        let date = [padded(year, 4), padded(random.pick([1, 2, 3, 12])), padded(random.pick([1, 2, 28]))]
        // PostgreSQL does not allow such large years BC.
        let era = year < 4000 ? random.pick(["", "", " BC"]) : ""
        return date.joined(separator: "-") + (clock.isEmpty ? "" : " " + clock) + era
    }

    private static func clock(_ random: inout SeededRandom) -> String {
        let parts = [random.pick([0, 9, 10, 23]), random.pick([0, 30, 59]), random.pick([0, 1, 59])].map { padded($0) }
        return parts.joined(separator: ":") + random.pick(["", ".1", ".12", ".000001", ".999999"])
    }

    private static func zone(_ random: inout SeededRandom) -> String {
        random.pick(["+00", "+01", "-01", "+05:30", "-00:30", "+01:00:01", "-12"])
    }

    private static func interval(_ random: inout SeededRandom) -> String {
        let parts = ["year", "mon", "day", "hour", "minute", "second"].compactMap { unit -> String? in
            random.pick([true, false]) ? "\(random.pick([-30, -12, -1, 0, 1, 12, 24, 30, 360])) \(unit)" : nil
        }
        return parts.isEmpty ? "0" : parts.joined(separator: " ")
    }

    private static func uuid(_ random: inout SeededRandom) -> String {
        (0..<32).map { $0 % 8 == 0 ? random.pick(["0", "a", "A", "f"]) : "7" }.joined()
    }

    private static func bits(_ random: inout SeededRandom, atLeast count: Int) -> String {
        (0..<Int.random(in: count...18, using: &random)).map { _ in random.pick(["0", "1"]) }.joined()
    }

    private static func json(_ random: inout SeededRandom, depth: Int) -> String {
        let parts = (0..<Int.random(in: 0...3, using: &random)).map { _ in depth - 1 }
        switch depth == 0 ? 0 : Int.random(in: 0..<3, using: &random) {
        case 1: return "[" + parts.map { json(&random, depth: $0) }.joined(separator: ",") + "]"
        case 2:
            let members = parts.map { "\"\(random.pick(["a", "b", "aa", "ä", "\\\""]))\":" + json(&random, depth: $0) }
            return "{" + members.joined(separator: ",") + "}"
        default: return random.pick(["1", "1.0", "2", "-1", "null", "true", "\"1\"", "\"a\"", "\"\\\\\\\"{\"", "\"\""])
        }
    }

    private static func array(_ element: TypeFacts, _ random: inout SeededRandom) -> String? {
        let dimensions = random.pick([1, 1, 1, 2])
        let width = Int.random(in: 1...3, using: &random)
        let groups = (0..<(dimensions == 1 ? 1 : Int.random(in: 1...2, using: &random))).map { _ in
            "{" + (0..<width).map { _ in item(element, &random) }.joined(separator: ",") + "}"
        }
        if dimensions == 2 { return "{" + groups.joined(separator: ",") + "}" }
        return random.pick(["", "", "[0:\(width - 1)]=", "[-1:\(width - 2)]="]) + groups.joined()
    }

    private static func item(_ element: TypeFacts, _ random: inout SeededRandom) -> String {
        guard Int.random(in: 0..<5, using: &random) > 0, let value = value(element, &random) else { return "NULL" }
        return "\"" + value.map { $0 == "\"" || $0 == "\\" ? "\\\($0)" : String($0) }.joined() + "\""
    }
}
