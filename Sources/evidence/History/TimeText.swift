import Diagnostics

/// Times as people write them: RFC 3339, of which parts may be left out. Reads no time zone data; the caller passes the
/// offset of a time zone.
public enum TimeText {
    /// Returns a time such as `2026-11-14T10:02:11.204000`, with at most `digits` digits of the fraction. `separator`
    /// is written before the time of day.
    public static func write(
        _ microseconds: Int64, offsetSeconds: Int64 = 0, separator: Character = "T", digits: Int = 6
    ) -> String {
        let local = microseconds &+ offsetSeconds * 1_000_000
        let (days, rest) = local.floored(by: 86_400_000_000)
        let (year, month, day) = CivilDate.of(daysSince1970: days)
        let seconds = rest / 1_000_000
        let fraction = padded(rest % 1_000_000, 6).prefix(digits)
        return "\(padded(year, 4))-\(padded(month, 2))-\(padded(day, 2))\(separator)"
            + "\(padded(seconds / 3600, 2)):\(padded(seconds / 60 % 60, 2)):\(padded(seconds % 60, 2)).\(fraction)"
    }

    /// Returns UTC with all six digits of the fraction, for scripts: such texts sort by time.
    public static func json(_ microseconds: Int64) -> String { write(microseconds) + "Z" }

    private static func padded(_ number: Int64, _ width: Int) -> String {
        let digits = String(number)
        return String(repeating: "0", count: max(0, width - digits.utf8.count)) + digits
    }

    /// Returns microseconds since 1970; nil if the text is not a time. A text without a zone is a local time: `zone`
    /// returns the local offset in seconds for it.
    public static func parse(_ text: some StringProtocol, zone: (Int64) -> Int64 = { _ in 0 }) -> Int64? {
        var scanner = Scanner(rest: Array(text.utf8)[...])
        guard let year = scanner.number(4), scanner.take("-"), let month = scanner.number(2), scanner.take("-"),
            let day = scanner.number(2), let days = CivilDate.days(year, month, day)
        else { return nil }
        var microseconds = days * 86_400_000_000
        if !scanner.isAtEnd {
            guard scanner.take("T") || scanner.take("t") || scanner.take(" "), let time = scanner.timeOfDay() else {
                return nil
            }
            microseconds += time
        }
        if scanner.isAtEnd { return microseconds - zone(microseconds / 1_000_000) * 1_000_000 }
        guard let offset = scanner.offset(), scanner.isAtEnd else { return nil }
        return microseconds - offset * 1_000_000
    }

    private struct Scanner {
        var rest: ArraySlice<UInt8>

        var isAtEnd: Bool { rest.isEmpty }

        mutating func take(_ character: Unicode.Scalar) -> Bool {
            guard rest.first == UInt8(ascii: character) else { return false }
            rest.removeFirst()
            return true
        }

        mutating func number(_ digits: Int) -> Int64? {
            let text = rest.prefix(digits)
            guard text.count == digits, text.allSatisfy({ (48...57).contains($0) }) else { return nil }
            rest = rest.dropFirst(digits)
            return text.reduce(0) { $0 * 10 + Int64($1 - 48) }
        }

        mutating func timeOfDay() -> Int64? {
            guard let hour = number(2), hour < 24, take(":"), let minute = number(2), minute < 60 else { return nil }
            var second: Int64 = 0
            if take(":") {
                // Sixty is a leap second, which PostgreSQL counts as the first of the next minute.
                guard let given = number(2), given <= 60 else { return nil }
                second = given
            }
            let whole = (hour * 3600 + minute * 60 + second) * 1_000_000
            return take(".") ? fraction().map { whole + $0 } : whole
        }

        mutating func fraction() -> Int64? {
            let digits = rest.prefix { (48...57).contains($0) }
            guard !digits.isEmpty else { return nil }
            rest = rest.dropFirst(digits.count)
            let six = digits.prefix(6) + [UInt8](repeating: 48, count: max(0, 6 - digits.count))
            return six.reduce(0) { $0 * 10 + Int64($1 - 48) }
        }

        /// Reads `Z`, `+02`, `+02:00` or `-0330`; returns seconds.
        mutating func offset() -> Int64? {
            if take("Z") || take("z") { return 0 }
            let isNegative = rest.first == UInt8(ascii: "-")
            guard take("+") || take("-"), let hours = number(2), hours < 24 else { return nil }
            var minutes: Int64 = 0
            if !isAtEnd {
                _ = take(":")
                guard let given = number(2), given < 60 else { return nil }
                minutes = given
            }
            let seconds = hours * 3600 + minutes * 60
            return isNegative ? -seconds : seconds
        }
    }
}
