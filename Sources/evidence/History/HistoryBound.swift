import Change

/// End of a window into the log, in the form that the user gave.
public enum HistoryBound: Sendable, Hashable {
    case oldest
    /// The current end of the log.
    case end
    /// Microseconds since 1970.
    case time(Int64)
    case offset(UInt64)
    /// The first transaction whose commit record begins at this LSN or later.
    case lsn(LSN)
    /// The newest transaction with this number.
    case xid(UInt32)

    /// All forms of a bound, for messages and manuals.
    public static let forms =
        "a time (2026-11-14, 2026-11-14T10:02:11Z), an age (-15m, -2h, -3d), now, oldest, @OFFSET, lsn:0/16B3748 or xid:7421"

    /// Parses a bound; nil if the text has none of the `forms`. `now` is in microseconds since 1970. `zone` returns the
    /// offset of local time from UTC in seconds.
    public init?(_ text: String, now: Int64, zone: (Int64) -> Int64 = { _ in 0 }) {
        guard let bound = Self.parse(text, now, zone) else { return nil }
        self = bound
    }

    private static func parse(_ text: String, _ now: Int64, _ zone: (Int64) -> Int64) -> HistoryBound? {
        switch text {
        case "now": return .time(now)
        case "oldest": return .oldest
        default: break
        }
        if text.hasPrefix("@") { return number(text.dropFirst(1)).map { .offset($0) } }
        if text.hasPrefix("lsn:") { return LSN(text.dropFirst(4)).map { .lsn($0) } }
        if text.hasPrefix("xid:") { return number(text.dropFirst(4)).map { .xid($0) } }
        if text.hasPrefix("-") { return Age.microseconds(text.dropFirst(1)).map { .time(now - $0) } }
        return TimeText.parse(text, zone: zone).map { .time($0) }
    }

    /// Accepts digits only. The standard library would also accept a sign.
    private static func number<Number: FixedWidthInteger>(_ text: Substring) -> Number? {
        text.utf8.allSatisfy { (48...57).contains($0) } ? Number(text) : nil
    }
}

/// Parser of durations such as `15m`, `2h` or `1h30m`.
enum Age {
    private static let units: [(name: String, seconds: Int64)] = [
        ("s", 1), ("sec", 1), ("m", 60), ("min", 60), ("h", 3600), ("d", 86_400), ("w", 604_800),
    ]

    static func microseconds(_ text: Substring) -> Int64? {
        var rest = text
        var total: Int64 = 0
        while !rest.isEmpty {
            let digits = rest.prefix { $0.isASCII && $0.isNumber }
            rest = rest.dropFirst(digits.count)
            let name = rest.prefix { $0.isLetter }
            rest = rest.dropFirst(name.count)
            guard let count = Int64(digits), let unit = units.first(where: { $0.name == name }) else { return nil }
            let (part, overflow) = count.multipliedReportingOverflow(by: unit.seconds * 1_000_000)
            let (sum, carried) = total.addingReportingOverflow(part)
            // An age of 1000 years or more is a typing error, and would not be a valid moment.
            guard !overflow, !carried, sum < 1000 * 366 * 86_400_000_000 else { return nil }
            total = sum
        }
        return text.isEmpty ? nil : total
    }
}
