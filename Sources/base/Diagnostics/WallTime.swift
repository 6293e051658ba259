import Glibc

/// A time in UTC with milliseconds, as log lines show it.
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

    /// Text in the form of RFC 3339, e.g. `2026-11-14T10:02:11.204Z`.
    public var description: String {
        let (days, millisecondOfDay) = millisecondsSince1970.floored(by: 86_400_000)
        let (year, month, day) = CivilDate.of(daysSince1970: days)
        let seconds = millisecondOfDay / 1000
        let date = "\(Self.padded(year, 4))-\(Self.padded(month, 2))-\(Self.padded(day, 2))"
        let hoursAndMinutes = "\(Self.padded(seconds / 3600, 2)):\(Self.padded(seconds / 60 % 60, 2))"
        return "\(date)T\(hoursAndMinutes):\(Self.padded(seconds % 60, 2)).\(Self.padded(millisecondOfDay % 1000, 3))Z"
    }

    private static func padded(_ number: Int64, _ width: Int) -> String {
        let digits = String(number)
        return String(repeating: "0", count: max(0, width - digits.utf8.count)) + digits
    }
}
