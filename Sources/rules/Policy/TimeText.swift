import Bytes

/// Reader that parses parts of dates and times in place.
private struct TimeReader: ~Escapable {
    private let text: RawSpan
    private(set) var at = 0

    @_lifetime(copy text)
    init(_ text: RawSpan) { self.text = text }

    var isAtEnd: Bool { at == text.byteCount }
    var next: UInt8? { at < text.byteCount ? text.byte(at) : nil }

    @_lifetime(self: copy self)
    mutating func take(_ word: StaticString) -> Bool {
        let end = at + word.utf8CodeUnitCount
        guard end <= text.byteCount, text.extracting(at..<end).equals(word) else { return false }
        assert(end > at, "a word of nothing is everywhere")
        at = end
        return true
    }

    /// Reads a number of at most eighteen digits, which always fits into `Int64`. Nil if there is none.
    @_lifetime(self: copy self)
    mutating func number() -> Int64? {
        let start = at
        var value: Int64 = 0
        while let byte = next, (48...57).contains(byte), at - start < 18 {
            value = value * 10 + Int64(byte - 48)
            at += 1
        }
        assert(value >= 0 && at - start <= 18, "a number that did not fit")
        return at > start ? value : nil
    }

    /// Reads a fraction of a second such as `.5`, in microseconds. Zero if there is none; nil if it is malformed.
    @_lifetime(self: copy self)
    mutating func fraction() -> Int64? {
        guard take(".") else { return 0 }
        let start = at
        guard let digits = number(), at - start <= 6 else { return nil }
        assert(digits < 1_000_000, "a fraction of a second is less than one")
        return (at - start..<6).reduce(digits) { value, _ in value * 10 }
    }

    /// Reads a time `HH:MM:SS.ffffff`, in microseconds. The hours may exceed 24.
    @_lifetime(self: copy self)
    mutating func clock() -> Int64? {
        guard let hours = number(), take(":"), let minutes = number(), take(":"), let seconds = number(),
            minutes < 60, seconds <= 60, hours < 1 << 40, let fraction = fraction()
        else { return nil }
        let (micros, overflow) = (hours * 3600 + minutes * 60 + seconds).multipliedReportingOverflow(by: 1_000_000)
        let (sum, tooLarge) = micros.addingReportingOverflow(fraction)
        return overflow || tooLarge ? nil : sum
    }

    /// Reads a time zone such as `+05:30:15`, in seconds east of Greenwich.
    @_lifetime(self: copy self)
    mutating func zone() -> Int64? {
        let isWest = take("-")
        guard isWest || take("+"), let hours = number(), hours < 100 else { return nil }
        var seconds = hours * 3600
        if take(":") {
            guard let minutes = number(), minutes < 60 else { return nil }
            seconds += minutes * 60
            if take(":") {
                guard let rest = number(), rest < 60 else { return nil }
                seconds += rest
            }
        }
        assert(seconds >= 0 && seconds < 100 * 3600, "a zone that is days away")
        return isWest ? -seconds : seconds
    }

    struct Date {
        var year: Int64
        var month: Int64
        var day: Int64

        /// Days since 2000-01-01 in the proleptic Gregorian calendar, in which year 0 is 1 BC. The algorithm is
        /// `days_from_civil` in Howard Hinnant's "chrono-Compatible Low-Level Date Algorithms".
        var days: Int64 {
            let year = month <= 2 ? year - 1 : year
            let era = (year >= 0 ? year : year - 399) / 400
            let yearOfEra = year - era * 400
            let dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1
            assert((0..<400).contains(yearOfEra), "a year outside of its era")
            return era * 146_097 + yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear - 730_425
        }
    }

    @_lifetime(self: copy self)
    mutating func date() -> Date? {
        guard let year = number(), year < 10_000_000, take("-"), let month = number(), (1...12).contains(month),
            take("-"), let day = number(), (1...31).contains(day)
        else { return nil }
        return Date(year: year, month: month, day: day)
    }
}

/// Parser of dates and timestamps in PostgreSQL's text form with `DateStyle` ISO.
enum DateText {
    static func days(_ text: RawSpan) -> Int64? {
        if let infinite = infinite(text) { return infinite }
        var reader = TimeReader(text)
        guard var date = reader.date() else { return nil }
        if reader.take(" BC") { date.year = 1 - date.year }
        return reader.isAtEnd ? date.days : nil
    }

    /// Returns the microseconds since 2000-01-01, in UTC if the text has a time zone. Nil if the text is malformed.
    static func microseconds(_ text: RawSpan) -> Int64? {
        if let infinite = infinite(text) { return infinite }
        var reader = TimeReader(text)
        guard var date = reader.date(), reader.take(" "), let clock = reader.clock() else { return nil }
        var zone: Int64 = 0
        if let sign = reader.next, sign != UInt8(ascii: " ") {
            guard let seconds = reader.zone() else { return nil }
            zone = seconds
        }
        if reader.take(" BC") { date.year = 1 - date.year }
        guard reader.isAtEnd else { return nil }
        let (micros, overflow) = date.days.multipliedReportingOverflow(by: 86_400_000_000)
        let (sum, tooLarge) = micros.addingReportingOverflow(clock - zone * 1_000_000)
        return overflow || tooLarge ? nil : sum
    }

    private static func infinite(_ text: RawSpan) -> Int64? {
        if text.equals("infinity") { return .max }
        return text.equals("-infinity") ? .min : nil
    }
}

/// Comparison of values of `time with time zone`.
enum ClockText {
    /// Compares the instants. If they are equal, the zone further west is greater, as in PostgreSQL's
    /// `timetz_cmp_internal`.
    static func compare(_ left: RawSpan, _ right: RawSpan) -> Int? {
        guard let a = parts(left), let b = parts(right) else { return nil }
        if a.instant != b.instant { return a.instant < b.instant ? -1 : 1 }
        return a.zone == b.zone ? 0 : a.zone > b.zone ? -1 : 1
    }

    private static func parts(_ text: RawSpan) -> (instant: Int64, zone: Int64)? {
        var reader = TimeReader(text)
        guard let clock = reader.clock(), let zone = reader.zone(), reader.isAtEnd else { return nil }
        return (clock - zone * 1_000_000, zone)
    }
}

/// Parser of intervals in PostgreSQL's text form with `IntervalStyle` postgres: `1 year 2 mons -3 days +04:05:06.7`.
enum IntervalText {
    /// Returns the number by which PostgreSQL compares intervals: microseconds, with 30 days in a month and 24 hours in
    /// a day (`interval_cmp_value`).
    static func span(_ text: RawSpan) -> Int128? {
        if text.equals("infinity") { return .max }
        if text.equals("-infinity") { return .min }
        return parts(text).map { ($0.months * 30 + $0.days) * 86_400_000_000 + $0.micros }
    }

    /// Returns the three numbers that PostgreSQL stores for an interval; nil if the text is malformed.
    static func parts(_ text: RawSpan) -> (months: Int128, days: Int128, micros: Int128)? {
        var months: Int128 = 0
        var reader = TimeReader(text)
        var days: Int128 = 0
        var micros: Int128 = 0
        repeat {
            let start = reader.at
            let isNegative = reader.take("-")
            if !isNegative { _ = reader.take("+") }
            let signed = reader.at
            guard let count = reader.number() else { return nil }
            let sign: Int128 = isNegative ? -1 : 1
            if reader.take(" year") {
                months += sign * Int128(count) * 12
            } else if reader.take(" mon") {
                months += sign * Int128(count)
            } else if reader.take(" day") {
                days += sign * Int128(count)
            } else {
                var clock = TimeReader(text.extracting(droppingFirst: signed))
                guard let time = clock.clock(), clock.isAtEnd, start <= signed else { return nil }
                assert(time >= 0, "a clock that counts from its sign on")
                micros += sign * Int128(time)
                return (months, days, micros)
            }
            _ = reader.take("s")
        } while reader.take(" ")
        return reader.isAtEnd ? (months, days, micros) : nil
    }
}
