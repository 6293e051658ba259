import Foundation

/// Converter of dates and times in PostgreSQL's text form, with microseconds. A text without a time zone means UTC.
enum PostgresTime {
    /// Parses `2026-03-01T10:20:30.123456+02`, `2026-03-01 10:20:30`, `2026-03-01`, `0044-03-15 BC` or `infinity`.
    static func date(_ text: String) -> Date? {
        switch text {
        case "infinity": return .distantFuture
        case "-infinity": return .distantPast
        default: break
        }
        var reader = Reader(text)
        let isBeforeChrist = reader.dropSuffix(" BC")
        guard var year = reader.number(), reader.take("-"), let month = reader.number(), reader.take("-"),
            let day = reader.number(), (1...12).contains(month), (1...31).contains(day)
        else { return nil }
        if isBeforeChrist { year = 1 - year }
        var seconds = days(year, month, day) * 86_400
        var microseconds = 0
        if reader.take("T") || reader.take(" ") {
            guard let time = reader.time() else { return nil }
            (seconds, microseconds) = (seconds + time.seconds, time.microseconds)
            guard let zone = reader.zone() else { return nil }
            seconds -= zone
        }
        guard reader.isAtEnd else { return nil }
        return Date(timeIntervalSince1970: Double(seconds) + Double(microseconds) / 1_000_000)
    }

    /// Returns the number of days from 1970-01-01 to a date. Uses the Gregorian calendar for all dates, as PostgreSQL
    /// does (Howard Hinnant, "days_from_civil").
    private static func days(_ year: Int, _ month: Int, _ day: Int) -> Int {
        let year = month <= 2 ? year - 1 : year
        let era = (year >= 0 ? year : year - 399) / 400
        let yearOfEra = year - era * 400
        let dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1
        return era * 146_097 + yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear - 719_468
    }

    /// Returns a date as text for filters: `2026-03-01T10:20:30.123456Z`.
    static func text(_ date: Date) -> String {
        let total = Int((date.timeIntervalSince1970 * 1_000_000).rounded())
        let (day, rest) = (Int((Double(total) / 86_400_000_000).rounded(.down)), 86_400_000_000)
        let ofDay = total - day * rest
        let (year, month, dayOfMonth) = civil(day)
        let seconds = ofDay / 1_000_000
        return [padded(year, 4), padded(month, 2), padded(dayOfMonth, 2)].joined(separator: "-") + "T"
            + [seconds / 3600, seconds / 60 % 60, seconds % 60].map { padded($0, 2) }.joined(separator: ":")
            + "." + padded(ofDay % 1_000_000, 6) + "Z"
    }

    /// Returns the year, month and day of a date that is so many days after 1970-01-01.
    private static func civil(_ days: Int) -> (Int, Int, Int) {
        let shifted = days + 719_468
        let era = (shifted >= 0 ? shifted : shifted - 146_096) / 146_097
        let dayOfEra = shifted - era * 146_097
        let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let shiftedMonth = (5 * dayOfYear + 2) / 153
        let month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
        return (yearOfEra + era * 400 + (month <= 2 ? 1 : 0), month, dayOfYear - (153 * shiftedMonth + 2) / 5 + 1)
    }

    private static func padded(_ number: Int, _ width: Int) -> String {
        let digits = String(number)
        return String(repeating: "0", count: max(0, width - digits.count)) + digits
    }

    private struct Reader {
        private var bytes: ArraySlice<UInt8>

        init(_ text: String) { bytes = Array(text.utf8)[...] }

        var isAtEnd: Bool { bytes.isEmpty }

        mutating func dropSuffix(_ suffix: String) -> Bool {
            let ending = Array(suffix.utf8)
            guard bytes.suffix(ending.count).elementsEqual(ending) else { return false }
            bytes.removeLast(ending.count)
            return true
        }

        mutating func take(_ character: Unicode.Scalar) -> Bool {
            guard bytes.first == UInt8(ascii: character) else { return false }
            bytes.removeFirst()
            return true
        }

        mutating func number() -> Int? {
            let digits = bytes.prefix { (48...57).contains($0) }
            guard !digits.isEmpty, digits.count < 10 else { return nil }
            bytes.removeFirst(digits.count)
            return digits.reduce(0) { $0 * 10 + Int($1 - 48) }
        }

        mutating func time() -> (seconds: Int, microseconds: Int)? {
            guard let hour = number(), take(":"), let minute = number(), take(":"), let second = number() else {
                return nil
            }
            guard take(".") else { return (hour * 3600 + minute * 60 + second, 0) }
            let digits = bytes.prefix { (48...57).contains($0) }
            bytes.removeFirst(digits.count)
            var microseconds = digits.prefix(6).reduce(0) { $0 * 10 + Int($1 - 48) }
            for _ in 0..<max(0, 6 - digits.count) { microseconds *= 10 }
            return (hour * 3600 + minute * 60 + second, microseconds)
        }

        /// Reads a time zone, as seconds east of UTC. A missing time zone means UTC. Returns nil if the text is not a
        /// time zone.
        mutating func zone() -> Int? {
            if isAtEnd || take("Z") { return 0 }
            let isWest = take("-")
            guard isWest || take("+"), let hours = number() else { return nil }
            var seconds = hours * 3600
            if take(":") {
                guard let minutes = number() else { return nil }
                seconds += minutes * 60
            }
            if take(":") { seconds += number() ?? 0 }
            return isWest ? -seconds : seconds
        }
    }
}
