import Bytes

/// Mapping of a type's values to ordered numbers, which lets an index search ranges.
///
/// The greater of two values never has the smaller number. Different values may have the same number, so a predicate
/// that is found by a range must still be evaluated.
public enum OrderForm: UInt8, Sendable, Hashable, BitwiseCopyable {
    case integer, numeric, float4, float8, date, timestamp
    /// Texts, ordered by their first eight bytes.
    case bytes, blankPadded

    /// Returns the number to which a value is mapped; nil if the text is not a value of the type.
    public func number(_ text: RawSpan) -> UInt64? {
        switch self {
        case .integer: IntegerText.value(text).map(Self.ordered)
        case .date: DateText.days(text).map(Self.ordered)
        case .timestamp: DateText.microseconds(text).map(Self.ordered)
        case .float4: FloatText.float(text).map { Self.ordered(Double($0)) }
        case .float8: FloatText.double(text).map(Self.ordered)
        case .numeric: NumericText.ordered(text)
        case .bytes: Self.firstBytes(text)
        case .blankPadded: Self.firstBytes(KeyForm.bpchar.canonical(text))
        }
    }

    private static func ordered(_ value: Int64) -> UInt64 { UInt64(bitPattern: value) ^ 1 << 63 }

    private static func ordered(_ value: Double) -> UInt64 {
        if value.isNaN { return .max }
        // Zero has the same number with either sign.
        let bits = (value == 0 ? 0 : value).bitPattern
        return bits >> 63 == 1 ? ~bits : bits | 1 << 63
    }

    private static func firstBytes(_ text: RawSpan) -> UInt64 {
        var number: UInt64 = 0
        for index in 0..<8 { number = number << 8 | (index < text.byteCount ? UInt64(text.byte(index)) : 0) }
        return number
    }
}

extension NumericText {
    /// Number of leading digits in the mapped number. The count of digits before the point is stored above them.
    private static let countedDigits = 13

    static func ordered(_ text: RawSpan) -> UInt64? {
        guard let last = text.byteCount > 0 ? text.byte(text.byteCount - 1) : nil else { return nil }
        let isNegative = text.byte(0) == UInt8(ascii: "-")
        if last == UInt8(ascii: "N") { return 1 << 63 | 1 }
        if last == UInt8(ascii: "y") { return isNegative ? 0 : 1 << 63 }
        // A text that cannot be compared has no number.
        guard (48...57).contains(last) else { return nil }
        guard let magnitude = magnitude(text.extracting(droppingFirst: isNegative ? 1 : 0)) else { return nil }
        return isNegative ? 1 << 62 - 1 - magnitude : 1 << 62 | magnitude
    }

    /// Returns a number whose high bits are the count of digits before the point and whose low bits are the first
    /// digits. Nil if the text is not a number.
    private static func magnitude(_ digits: RawSpan) -> UInt64? {
        var whole = 0
        while whole < digits.byteCount, digits.byte(whole) != UInt8(ascii: ".") { whole += 1 }
        guard whole < 1 << 18 else { return nil }
        var first: UInt64 = 0
        var taken = 0
        for index in 0..<digits.byteCount where index != whole {
            let digit = UInt64(digits.byte(index)) &- 48
            guard digit <= 9 else { return nil }
            first = first * 10 + digit
            taken += 1
            if taken == countedDigits { break }
        }
        while taken < countedDigits {
            first *= 10
            taken += 1
        }
        assert(taken == countedDigits && first < 1 << 44, "digits reach into what counts them")
        return UInt64(whole) << 44 | first
    }
}

/// Range of a column's values including both ends. The ends are mapped numbers, so the range may contain more values
/// than the condition.
public struct ValueRange: Sendable, Hashable {
    public var slot: Int
    public var form: OrderForm
    public var low: UInt64
    public var high: UInt64

    public init(slot: Int, form: OrderForm, low: UInt64 = .min, high: UInt64 = .max) {
        precondition(slot >= 0, "a column before the first")
        self.slot = slot
        self.form = form
        self.low = low
        self.high = high
    }

    /// True if the value may be in the range.
    public func mayHold(_ text: RawSpan) -> Bool {
        guard let number = form.number(text) else { return true }
        return low <= number && number <= high
    }

    func isOfSame(_ other: ValueRange) -> Bool { slot == other.slot && form == other.form }

    var isBounded: Bool { low != .min && high != .max }

    /// Returns the intersection of two ranges of one column. For ranges of different columns, returns the one with two
    /// bounds; `self` if both or neither have them.
    func common(_ other: ValueRange) -> ValueRange {
        guard isOfSame(other) else { return isBounded || !other.isBounded ? self : other }
        return ValueRange(slot: slot, form: form, low: max(low, other.low), high: min(high, other.high))
    }

    /// Returns the smallest range that contains both ranges; nil for ranges of different columns.
    func hull(_ other: ValueRange) -> ValueRange? {
        guard isOfSame(other) else { return nil }
        let hull = ValueRange(slot: slot, form: form, low: min(low, other.low), high: max(high, other.high))
        assert(hull.low <= low && hull.high >= high, "a range that leaves out what it is to have")
        return hull
    }
}

extension Comparator {
    var orderForm: OrderForm? {
        guard !isArray else { return nil }
        switch kind {
        case .bytes: return .bytes
        case .blankPadded: return .blankPadded
        case .integer: return .integer
        case .numeric: return .numeric
        case .float4: return .float4
        case .float8: return .float8
        case .date: return .date
        case .timestamp: return .timestamp
        case .bytesUnordered, .blankPaddedUnordered, .timeWithZone, .interval, .enumeration, .jsonb, .opaque: return nil
        }
    }
}
