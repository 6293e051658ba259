import Bytes

#if canImport(Glibc)
    import Glibc
#endif

/// Parser of integers in PostgreSQL's text form.
enum IntegerText {
    static func value(_ text: RawSpan) -> Int64? {
        let isNegative = text.byteCount > 0 && text.byte(0) == UInt8(ascii: "-")
        var at = isNegative ? 1 : 0
        guard at < text.byteCount else { return nil }
        var value: Int64 = 0
        while at < text.byteCount {
            let digit = Int64(text.byte(at)) - 48
            guard (0...9).contains(digit) else { return nil }
            let (product, tooLarge) = value.multipliedReportingOverflow(by: 10)
            // The value is negative here, because the smallest number has no positive counterpart.
            let (sum, overflow) = product.subtractingReportingOverflow(digit)
            guard !tooLarge, !overflow else { return nil }
            value = sum
            at += 1
        }
        assert(value <= 0, "kept negative")
        if isNegative { return value }
        return value == .min ? nil : -value
    }
}

/// Comparison of numerics in PostgreSQL's text form: no exponent, no sign of zero, no leading zeros.
enum NumericText {
    private enum Rank: Int {
        case negativeInfinity, finite, infinity, notANumber
    }

    static func compare(_ left: RawSpan, _ right: RawSpan) -> Int? {
        guard let a = rank(left), let b = rank(right) else { return nil }
        guard a == .finite, b == .finite else { return a.rawValue - b.rawValue }
        let aNegative = left.byte(0) == UInt8(ascii: "-")
        let bNegative = right.byte(0) == UInt8(ascii: "-")
        guard aNegative == bNegative else { return aNegative ? -1 : 1 }
        let start = aNegative ? 1 : 0
        let order = compareMagnitudes(
            KeyForm.numeric.canonical(left).extracting(droppingFirst: start),
            KeyForm.numeric.canonical(right).extracting(droppingFirst: start))
        assert(
            (order == 0) == (KeyForm.numeric.canonical(left).equals(KeyForm.numeric.canonical(right))),
            "an order that differs from equality")
        return aNegative ? -order : order
    }

    private static func rank(_ text: RawSpan) -> Rank? {
        guard text.byteCount > 0 else { return nil }
        switch text.byte(text.byteCount - 1) {
        case 48...57: return .finite
        case UInt8(ascii: "N"): return .notANumber
        case UInt8(ascii: "y"): return text.byte(0) == UInt8(ascii: "-") ? .negativeInfinity : .infinity
        default: return nil
        }
    }

    /// Compares numbers without sign and without zeros at either end. A number with more digits before the point is
    /// larger. If they have equally many, digits of the same weight have the same offset.
    private static func compareMagnitudes(_ left: RawSpan, _ right: RawSpan) -> Int {
        let (a, b) = (wholeDigits(left), wholeDigits(right))
        return a == b ? ByteOrder.compare(left, right) : a - b
    }

    private static func wholeDigits(_ text: RawSpan) -> Int {
        var count = 0
        while count < text.byteCount, text.byte(count) != UInt8(ascii: ".") { count += 1 }
        return count
    }
}

/// Parser of floating-point numbers in PostgreSQL's text form, which is the shortest text for the number.
enum FloatText {
    /// Maximum length of a text in bytes. PostgreSQL's longest is `-2.2250738585072014e-308`.
    private static let maximumBytes = 31

    static func double(_ text: RawSpan) -> Double? {
        // SAFETY: the text given to `strtod` ends with a zero; the process never leaves the C locale.
        unsafe parse(text) { start, end in unsafe strtod(start, end) }
    }

    static func float(_ text: RawSpan) -> Float? {
        // SAFETY: as above.
        unsafe parse(text) { start, end in unsafe strtof(start, end) }
    }

    /// Compares two numbers. NaN equals NaN and is greater than all others.
    static func compare<Number: BinaryFloatingPoint>(_ left: Number?, _ right: Number?) -> Int? {
        guard let left, let right else { return nil }
        if left.isNaN || right.isNaN { return (left.isNaN ? 1 : 0) - (right.isNaN ? 1 : 0) }
        return left < right ? -1 : left > right ? 1 : 0
    }

    private static func parse<Number>(
        _ text: RawSpan,
        _ convert: (UnsafePointer<CChar>, UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>) -> Number
    ) -> Number? {
        let count = text.byteCount
        guard count > 0, count <= maximumBytes else { return nil }
        // SAFETY: the copy has room for the text and its zero; `end` is set within it.
        return unsafe withUnsafeTemporaryAllocation(of: CChar.self, capacity: maximumBytes + 1) { copy in
            for index in 0..<count { unsafe copy[index] = CChar(bitPattern: text.byte(index)) }
            unsafe copy[count] = 0
            guard let start = copy.baseAddress else { return nil }
            var end: UnsafeMutablePointer<CChar>? = unsafe start
            let number = unsafe convert(start, &end)
            return unsafe end == start + count ? number : nil
        }
    }
}
