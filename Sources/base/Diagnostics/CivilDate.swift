/// Proleptic Gregorian calendar, computed with years that begin in March, so that the leap day is the last of its year.
/// (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".)
public enum CivilDate {
    public static func of(daysSince1970: Int64) -> (year: Int64, month: Int64, day: Int64) {
        let (era, dayOfEra) = (daysSince1970 + 719_468).floored(by: 146_097)
        let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let monthFromMarch = (5 * dayOfYear + 2) / 153
        let day = dayOfYear - (153 * monthFromMarch + 2) / 5 + 1
        let month = monthFromMarch < 10 ? monthFromMarch + 3 : monthFromMarch - 9
        return (yearOfEra + era * 400 + (month <= 2 ? 1 : 0), month, day)
    }

    /// Returns the days from 1970 to a date; nil if the date does not exist, such as 30 February.
    public static func days(_ year: Int64, _ month: Int64, _ day: Int64) -> Int64? {
        guard (1...12).contains(month), (1...31).contains(day) else { return nil }
        let (era, yearOfEra) = (month <= 2 ? year - 1 : year).floored(by: 400)
        let dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1
        let days = era * 146_097 + yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear - 719_468
        let back = of(daysSince1970: days)
        return back == (year, month, day) ? days : nil
    }
}

extension Int64 {
    /// Divides and rounds towards minus infinity. So a time before 1970 has a positive time of day, too.
    public func floored(by divisor: Int64) -> (quotient: Int64, remainder: Int64) {
        let (quotient, remainder) = quotientAndRemainder(dividingBy: divisor)
        return remainder < 0 ? (quotient - 1, remainder + divisor) : (quotient, remainder)
    }
}
