import Bytes

/// Time relative to the commit of a change, as filters write it: `now`, `now-10min` or `now+2h`.
enum RelativeTime {
    private static let units: [(name: String, microseconds: Int64)] = [
        ("s", 1_000_000), ("min", 60_000_000), ("h", 3_600_000_000), ("d", 86_400_000_000),
    ]
    /// Largest distance from the commit: ten thousand years.
    private static let maximumMicroseconds: Int64 = 3_652_425 * 86_400_000_000

    /// Returns the distance from the commit in microseconds, negative for a time before it. Nil if the text is not
    /// relative, so that PostgreSQL reads it. Throws a refusal if the text begins like a relative time and is none.
    static func offset(_ text: String) throws(FilterRefusal) -> Int64? {
        var rest = Array(text.utf8)[...]
        guard rest.starts(with: "now".utf8) else { return nil }
        rest = rest.dropFirst(3)
        guard let sign = rest.popFirst() else { return 0 }
        guard sign == UInt8(ascii: "-") || sign == UInt8(ascii: "+") else { return nil }
        let digits = rest.prefix { (48...57).contains($0) }
        let unit = String(decoding: rest.dropFirst(digits.count), as: UTF8.self)
        guard (1...9).contains(digits.count), let each = units.first(where: { $0.name == unit })?.microseconds else {
            throw .raised(
                "invalid relative time \(text): write now, now-10min or now+2h, with the unit s, min, h or d")
        }
        let count = digits.reduce(Int64(0)) { $0 * 10 + Int64($1 - 48) }
        let (distance, overflow) = count.multipliedReportingOverflow(by: each)
        guard !overflow, distance <= maximumMicroseconds else {
            throw .raised("relative time \(text) is out of range: it may be ten thousand years away")
        }
        return sign == UInt8(ascii: "-") ? -distance : distance
    }

    /// True if filters can compare values of the type with a relative time.
    static func fits(_ type: TypeFacts) -> Bool {
        guard type.shape == .base else { return false }
        return [TypeOID.timestamptz, TypeOID.timestamp, TypeOID.date].contains(type.oid)
    }

    /// Compares a value with the time that is `offset` microseconds from the commit. A timestamp without a time zone is
    /// taken as UTC, and a date as its beginning in UTC. Nil if the value or the commit's time is not known.
    static func order(_ value: RawSpan, _ offset: RawSpan, _ comparator: Comparator, _ committed: Int64?) -> Int? {
        guard let committed, let offset = IntegerText.value(offset), let value = microseconds(value, comparator) else {
            return nil
        }
        let (moment, overflow) = committed.addingReportingOverflow(offset)
        assert(!overflow, "a commit at the end of all times")
        return value < moment ? -1 : value > moment ? 1 : 0
    }

    private static func microseconds(_ value: RawSpan, _ comparator: Comparator) -> Int64? {
        guard comparator.kind == .date else { return DateText.microseconds(value) }
        guard let days = DateText.days(value) else { return nil }
        // An infinite date stays infinite.
        let (product, overflow) = days.multipliedReportingOverflow(by: 86_400_000_000)
        return overflow ? days < 0 ? .min : .max : product
    }
}
