import Bytes

extension Function {
    /// Applies the function to values. For a strict function no value may be NULL. The work grows with the sum of the
    /// lengths, or with the product of two lengths, which is limited to `maximumWork`.
    func apply(_ values: [[UInt8]?], moment: Int64?, maximumWork: Int) -> Outcome {
        switch operation {
        case .failure: return .failed
        case .moment: return moment.map { .value(InstantText.zoned($0)) } ?? .cannot
        case .split: return Self.split(values)
        default: break
        }
        let known = values.compactMap { $0 }
        guard known.count == values.count else { return .null }
        return known.count == 2 ? pair(known[0], known[1], maximumWork) : others(known)
    }

    // MARK: Two values

    private func pair(_ left: [UInt8], _ right: [UInt8], _ maximumWork: Int) -> Outcome {
        let (work, overflow) = left.count.multipliedReportingOverflow(by: right.count)
        guard !overflow, work <= maximumWork || isLinear else { return .cannot }
        // SAFETY: any byte is a valid UInt8, and the spans live for the call.
        let (a, b) = unsafe (left.span.bytes, right.span.bytes)
        switch operation {
        case .compare(let comparison, let comparator, let labels):
            return Self.compare(a, b, comparison, comparator, labels)
        case .compareFloats(let comparison, let one, let other):
            return Self.ordered(comparison, FloatText.compare(FloatText.wide(a, one), FloatText.wide(b, other)))
        case .compareMoments(let comparison):
            return Self.compareMoments(a, b, comparison)
        case .contains(let comparator): return Outcome(Self.contains(a, b, comparator))
        case .isContained(let comparator): return Outcome(Self.contains(b, a, comparator))
        case .overlaps(let comparator): return Outcome(ArrayText.overlaps(a, b, by: comparator))
        case .like(let isNegated, let folding): return Self.like(a, b, right, isNegated, folding)
        case .field(let address, let asText, let isBinary):
            return JSONField.value(a, at: right, address, asText: asText, isBinary: isBinary)
        case .hasName(let quantity): return JSONField.hasName(a, right, quantity)
        case .arithmetic(let arithmetic, let width): return Self.calculate(a, b, arithmetic, width)
        case .shiftMoment(let isNegative, let isUTC): return Self.shift(a, b, isNegative, isUTC)
        case .concatenate: return .value(left + right)
        case .startsWith: return Outcome(left.starts(with: right))
        case .trim(let start, let end): return Self.trim(left, right, start, end)
        case .arrayLength: return Self.arrayLength(a, b)
        default: return .cannot
        }
    }

    /// True if the function takes no longer than reading both values.
    private var isLinear: Bool {
        switch operation {
        case .compare(_, let comparator, _): !comparator.isArray
        case .concatenate, .startsWith, .arithmetic, .field: true
        default: false
        }
    }

    private static func compare(
        _ a: RawSpan, _ b: RawSpan, _ comparison: Comparison, _ comparator: Comparator, _ labels: [[UInt8]]
    ) -> Outcome {
        guard comparison.isOrder else {
            return Outcome(comparator.equal(a, b).map { $0 == (comparison == .equal) })
        }
        guard comparator.kind == .enumeration else {
            let none = Constants([Predicate.Constant]().span, RawSpan())
            return ordered(comparison, comparator.order(a, b, none))
        }
        assert(Set(labels).count == labels.count, "a label that stands in two places")
        guard let left = labels.firstIndex(of: a.copied()), let right = labels.firstIndex(of: b.copied()) else {
            return .cannot
        }
        return ordered(comparison, left - right)
    }

    private static func ordered(_ comparison: Comparison, _ order: Int?) -> Outcome {
        Outcome(order.map { comparison.holds($0) })
    }

    private static func compareMoments(_ a: RawSpan, _ b: RawSpan, _ comparison: Comparison) -> Outcome {
        guard let left = DateText.instant(a), let right = DateText.instant(b) else { return .cannot }
        return Outcome(comparison.holds(left < right ? -1 : left > right ? 1 : 0))
    }

    private static func contains(_ whole: RawSpan, _ part: RawSpan, _ comparator: Comparator) -> Bool? {
        comparator.isArray ? ArrayText.contains(whole, part, by: comparator) : JSONBText.contains(whole, part)
    }

    private static func like(
        _ text: RawSpan, _ pattern: RawSpan, _ bytes: [UInt8], _ isNegated: Bool, _ folding: Folding
    ) -> Outcome {
        // PostgreSQL raises an error only if it reaches the escape at the end of the pattern.
        guard !LikePattern.endsWithEscape(bytes) else { return .cannot }
        if folding == .ofASCII, !LikePattern.isASCII(text) || !LikePattern.isASCII(pattern) { return .cannot }
        return Outcome(LikePattern.matches(text, pattern, foldingCase: folding != .none) != isNegated)
    }

    private static func calculate(
        _ a: RawSpan, _ b: RawSpan, _ arithmetic: Arithmetic, _ width: IntegerWidth
    ) -> Outcome {
        guard let left = IntegerText.value(a), let right = IntegerText.value(b) else { return .cannot }
        let result: (partialValue: Int64, overflow: Bool)
        switch arithmetic {
        case .add: result = left.addingReportingOverflow(right)
        case .subtract: result = left.subtractingReportingOverflow(right)
        case .multiply: result = left.multipliedReportingOverflow(by: right)
        case .divide: result = left.dividedReportingOverflow(by: right)
        // As in PostgreSQL, the remainder of the smallest number divided by -1 is 0.
        case .remainder: result = right == -1 ? (0, false) : left.remainderReportingOverflow(dividingBy: right)
        }
        guard !result.overflow, width.range.contains(result.partialValue) else { return .failed }
        return Outcome(String(result.partialValue))
    }

    private static func shift(_ instant: RawSpan, _ interval: RawSpan, _ isNegative: Bool, _ isUTC: Bool) -> Outcome {
        guard let start = DateText.microseconds(instant), let parts = IntervalText.parts(interval),
            parts.months == 0, parts.days == 0 || isUTC, start != .max, start != .min
        else { return .cannot }
        let distance = Int128(parts.days) * 86_400_000_000 + Int128(parts.micros)
        let sum = Int128(start) + (isNegative ? -distance : distance)
        guard let end = Int64(exactly: sum), InstantText.plain.contains(end) else { return .cannot }
        return .value(InstantText.zoned(end))
    }

    private static func trim(_ text: [UInt8], _ characters: [UInt8], _ start: Bool, _ end: Bool) -> Outcome {
        guard characters.allSatisfy({ $0 < 0x80 }) else { return .cannot }
        var rest = text[...]
        if start { rest = rest.drop { characters.contains($0) } }
        while end, let last = rest.last, characters.contains(last) { rest = rest.dropLast() }
        return .value(Array(rest))
    }

    private static func arrayLength(_ array: RawSpan, _ dimension: RawSpan) -> Outcome {
        guard let shape = ArrayText.shape(array), let dimension = IntegerText.value(dimension) else { return .cannot }
        guard dimension >= 1, dimension <= Int64(shape.dimensions) else { return .null }
        return Outcome(String(shape.sizes[Int(dimension) - 1]))
    }

    // MARK: One value, and three values

    private func others(_ values: [[UInt8]]) -> Outcome {
        guard let value = values.first else { return .cannot }
        switch operation {
        case .relabel: return .value(value)
        case .withoutBlanks:
            // SAFETY: any byte is a valid UInt8, and the span lives for the call.
            return .value(KeyForm.bpchar.canonical(unsafe value.span.bytes).copied())
        case .truthWord: return Outcome(value == [UInt8(ascii: "t")] ? "true" : "false")
        // PostgreSQL truncates a longer name.
        case .name: return value.count < 64 ? .value(value) : .cannot
        case .parse: return parse(value)
        case .parseJSON(let isBinary): return JSONField.parse(value, isBinary: isBinary)
        case .fold(let isUpper, let folding): return Self.fold(value, isUpper, folding)
        case .length: return Outcome(String(value.count { $0 & 0xc0 != 0x80 }))
        case .trim(let start, let end): return Self.trim(value, [0x20], start, end)
        case .part: return Self.part(values)
        case .replace: return Self.replace(values)
        default: return ofNumbers(value)
        }
    }

    private func ofNumbers(_ value: [UInt8]) -> Outcome {
        // SAFETY: any byte is a valid UInt8, and the span lives for the call.
        let text = unsafe value.span.bytes
        switch operation {
        case .narrow(let width):
            guard let number = IntegerText.value(text) else { return .cannot }
            return width.range.contains(number) ? .value(value) : .failed
        case .float(let width): return FloatText.canonical(text, width).map { .value($0) } ?? .cannot
        case .midnight:
            let isPlain = !text.equals("infinity") && !text.equals("-infinity") && value.count == 10
            return isPlain ? .value(value + Array(" 00:00:00".utf8)) : .cannot
        case .zoneOfUTC(let isAdded): return Self.zone(value, isAdded)
        case .cardinality: return ArrayText.shape(text).map { Outcome(String($0.count)) } ?? .cannot
        default: return .cannot
        }
    }

    private static func zone(_ value: [UInt8], _ isAdded: Bool) -> Outcome {
        // Infinite times and times before Christ do not end with a digit.
        guard let last = value.last, (48...57).contains(last) else { return .cannot }
        if isAdded { return .value(value + Array("+00".utf8)) }
        return value.suffix(3).elementsEqual("+00".utf8) ? .value(value.dropLast(3)) : .cannot
    }

    private func parse(_ value: [UInt8]) -> Outcome {
        if result.isTextArray {
            return ArrayLiteral.plainElements(value).map { .value(ArrayText.text($0)) } ?? .cannot
        }
        do throws(FilterRefusal) {
            switch try CanonicalText.of(String(decoding: value, as: UTF8.self), result) {
            case .ready(let canonical): return .value(canonical)
            case .ask: return .cannot
            }
        } catch {
            return .failed
        }
    }

    private static func fold(_ value: [UInt8], _ isUpper: Bool, _ folding: Folding) -> Outcome {
        guard folding == .plain || value.allSatisfy({ $0 < 0x80 }) else { return .cannot }
        let letters: ClosedRange<UInt8> = isUpper ? 0x61...0x7a : 0x41...0x5a
        return .value(value.map { letters.contains($0) ? $0 ^ 0x20 : $0 })
    }

    // MARK: Parts of texts

    private static func split(_ values: [[UInt8]?]) -> Outcome {
        precondition(values.count == 2, "a text and what divides it")
        guard let text = values[0] else { return .null }
        // If the delimiter is NULL, PostgreSQL splits the text into single characters.
        guard let delimiter = values[1] else { return .cannot }
        if text.isEmpty { return .value(ArrayText.text([])) }
        return .value(ArrayText.text(pieces(text, delimiter)))
    }

    private static func pieces(_ text: [UInt8], _ delimiter: [UInt8]) -> [[UInt8]] {
        guard !delimiter.isEmpty else { return [text] }
        var pieces: [[UInt8]] = []
        var start = 0
        var at = 0
        while at + delimiter.count <= text.count {
            if text[at..<at + delimiter.count].elementsEqual(delimiter) {
                pieces.append(Array(text[start..<at]))
                at += delimiter.count
                start = at
            } else {
                at += 1
            }
        }
        pieces.append(Array(text[start...]))
        assert(Array(pieces.joined(separator: delimiter)) == text, "a text that is more than its pieces")
        return pieces
    }

    private static func part(_ values: [[UInt8]]) -> Outcome {
        precondition(values.count == 3, "a text, what divides it, and which part")
        let last = values[2]
        // SAFETY: any byte is a valid UInt8, and the span lives for the call.
        guard let number = IntegerText.value(unsafe last.span.bytes) else { return .cannot }
        guard number != 0 else { return .failed }
        // A negative number counts from the end, but only in newer versions of PostgreSQL.
        guard number > 0 else { return .cannot }
        let pieces = values[0].isEmpty ? [] : pieces(values[0], values[1])
        return .value(number <= Int64(pieces.count) ? pieces[Int(number) - 1] : [])
    }

    private static func replace(_ values: [[UInt8]]) -> Outcome {
        precondition(values.count == 3, "a text, what is looked for, and what is put there")
        guard !values[1].isEmpty, !values[0].isEmpty else { return .value(values[0]) }
        return .value(Array(pieces(values[0], values[1]).joined(separator: values[2])))
    }
}

extension ArrayText {
    /// Returns the text of an array of one dimension, as PostgreSQL's `array_out` writes it.
    static func text(_ elements: [[UInt8]?]) -> [UInt8] {
        var text = [UInt8(ascii: "{")]
        for (index, element) in elements.enumerated() {
            if index > 0 { text.append(UInt8(ascii: ",")) }
            guard let element else {
                text += "NULL".utf8
                continue
            }
            append(element, to: &text)
        }
        text.append(UInt8(ascii: "}"))
        assert(Self.elements(text) == elements, "an array that is read as another one")
        return text
    }

    private static func append(_ element: [UInt8], to text: inout [UInt8]) {
        let isSpecial = { (byte: UInt8) in
            byte == 0x20 || (0x09...0x0d).contains(byte) || "{}\",\\".utf8.contains(byte)
        }
        let isNull = element.count == 4 && element.map { $0 & 0xdf }.elementsEqual("NULL".utf8)
        guard element.isEmpty || isNull || element.contains(where: isSpecial) else {
            text += element
            return
        }
        text.append(UInt8(ascii: "\""))
        for byte in element {
            if byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") { text.append(UInt8(ascii: "\\")) }
            text.append(byte)
        }
        text.append(UInt8(ascii: "\""))
    }
}

extension FloatText {
    static func wide(_ text: RawSpan, _ width: Function.FloatWidth) -> Double? {
        width == .double ? double(text) : float(text).map { Double($0) }
    }

    /// Returns the text that PostgreSQL writes for the number; nil if PostgreSQL would write an exponent.
    static func canonical(_ text: RawSpan, _ width: Function.FloatWidth) -> [UInt8]? {
        let description: String?
        switch width {
        case .double: description = double(text).flatMap { abs($0) < 1e15 ? $0.description : nil }
        case .single: description = float(text).flatMap { abs($0) < 1e6 ? $0.description : nil }
        }
        guard let description, description.utf8.allSatisfy({ "-.0123456789".utf8.contains($0) }) else { return nil }
        return Array((description.hasSuffix(".0") ? String(description.dropLast(2)) : description).utf8)
    }
}

extension DateText {
    /// Returns the time of a timestamp, or of a date's midnight, in microseconds since 2000-01-01.
    static func instant(_ text: RawSpan) -> Int128? {
        if let micros = microseconds(text) { return wide(micros, 1) }
        return days(text).map { wide($0, 86_400_000_000) }
    }

    private static func wide(_ number: Int64, _ unit: Int128) -> Int128 {
        switch number {
        case .max: .max
        case .min: .min
        default: Int128(number) * unit
        }
    }
}

/// Writer of timestamps in the form that PostgreSQL writes with the time zone UTC.
enum InstantText {
    /// Timestamps from the year 1 to the end of the year 9999, in microseconds since 2000-01-01.
    static let plain: ClosedRange<Int64> = -63_082_281_600_000_000...252_455_615_999_999_999

    static func zoned(_ micros: Int64) -> [UInt8] {
        let day: Int64 = 86_400_000_000
        let clock = (micros % day + day) % day
        precondition((0..<day).contains(clock), "a time of another day")
        let date = civil((micros - clock) / day)
        let seconds = clock / 1_000_000
        var text = "\(padded(date.year, 4))-\(padded(date.month, 2))-\(padded(date.day, 2)) "
        text += "\(padded(seconds / 3600, 2)):\(padded(seconds / 60 % 60, 2)):\(padded(seconds % 60, 2))"
        if clock % 1_000_000 != 0 {
            var fraction = padded(clock % 1_000_000, 6)
            while fraction.hasSuffix("0") { fraction.removeLast() }
            text += "." + fraction
        }
        return Array((text + "+00").utf8)
    }

    private static func padded(_ number: Int64, _ width: Int) -> String {
        let digits = String(number)
        return String(repeating: "0", count: max(0, width - digits.count)) + digits
    }

    /// Returns the Gregorian date of a day. `days` counts from 2000-01-01. The algorithm is `civil_from_days` in Howard
    /// Hinnant's "chrono-Compatible Low-Level Date Algorithms".
    private static func civil(_ days: Int64) -> (year: Int64, month: Int64, day: Int64) {
        let shifted = days + 730_425
        let era = (shifted >= 0 ? shifted : shifted - 146_096) / 146_097
        let dayOfEra = shifted - era * 146_097
        let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let month = (5 * dayOfYear + 2) / 153
        let day = dayOfYear - (153 * month + 2) / 5 + 1
        assert((0...11).contains(month) && (1...31).contains(day), "a day outside of its month")
        let isLate = month >= 10
        return (yearOfEra + era * 400 + (isLate ? 1 : 0), isLate ? month - 9 : month + 3, day)
    }
}
