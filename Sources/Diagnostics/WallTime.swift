import Glibc

/// A moment in Coordinated Universal Time, to the millisecond, as log lines show it.
public struct WallTime: Sendable, Equatable, CustomStringConvertible {
    public let millisecondsSince1970: Int64

    public init(millisecondsSince1970: Int64) {
        self.millisecondsSince1970 = millisecondsSince1970
    }

    public static func now() -> WallTime {
        var time = timespec()
        // SAFETY: the call writes one timespec to the variable above and keeps no pointer to it.
        unsafe clock_gettime(CLOCK_REALTIME, &time)
        return WallTime(millisecondsSince1970: Int64(time.tv_sec) * 1000 + Int64(time.tv_nsec) / 1_000_000)
    }

    /// RFC 3339, e.g. `2026-11-14T10:02:11.204Z`.
    public var description: String {
        let (days, millisecondOfDay) = millisecondsSince1970.flooredDivision(by: 86_400_000)
        let (year, month, day) = Self.civilDate(daysSince1970: days)
        let seconds = millisecondOfDay / 1000
        let date = "\(Self.padded(year, 4))-\(Self.padded(month, 2))-\(Self.padded(day, 2))"
        let hoursAndMinutes = "\(Self.padded(seconds / 3600, 2)):\(Self.padded(seconds / 60 % 60, 2))"
        return "\(date)T\(hoursAndMinutes):\(Self.padded(seconds % 60, 2)).\(Self.padded(millisecondOfDay % 1000, 3))Z"
    }

    /// The proleptic Gregorian date, counted in years that begin in March, so that the leap day is the last of its year.
    /// (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days.)
    private static func civilDate(daysSince1970: Int64) -> (year: Int64, month: Int64, day: Int64) {
        let daysFrom0000March = daysSince1970 + 719_468
        let (era, dayOfEra) = daysFrom0000March.flooredDivision(by: 146_097)
        let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let monthFromMarch = (5 * dayOfYear + 2) / 153
        let day = dayOfYear - (153 * monthFromMarch + 2) / 5 + 1
        let month = monthFromMarch < 10 ? monthFromMarch + 3 : monthFromMarch - 9
        return (yearOfEra + era * 400 + (month <= 2 ? 1 : 0), month, day)
    }

    private static func padded(_ number: Int64, _ width: Int) -> String {
        let digits = String(number)
        return String(repeating: "0", count: max(0, width - digits.utf8.count)) + digits
    }
}

extension Int64 {
    /// Division that rounds towards minus infinity, so that moments before 1970 keep a positive time of day.
    fileprivate func flooredDivision(by divisor: Int64) -> (quotient: Int64, remainder: Int64) {
        let (quotient, remainder) = quotientAndRemainder(dividingBy: divisor)
        return remainder < 0 ? (quotient - 1, remainder + divisor) : (quotient, remainder)
    }
}
