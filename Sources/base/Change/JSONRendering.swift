import Bytes

/// Conversion of a value's text to JSON. PostgreSQL writes the text with ISO dates, UTC and hex.
///
/// The type is a plain number in memory. Each value of each row needs its conversion, and a reference would cost
/// reference counting each time. In PostgreSQL, arrays of arrays have the same type as arrays, so one level suffices.
public enum JSONRendering: Sendable {
    case scalar(ScalarRendering)
    case array(of: ScalarRendering)

    /// Appends the value as JSON. A text that PostgreSQL should never write becomes a JSON string, so that
    /// the output is always well-formed.
    public func append(_ text: RawSpan, to writer: inout ByteWriter) {
        switch self {
        case .scalar(let scalar): scalar.append(text, to: &writer)
        case .array(let element): ArrayText.append(text, of: element, to: &writer)
        }
    }
}

public enum ScalarRendering: Sendable {
    case integer
    /// Conversion of numeric and float: digits unchanged, exponents written out, NaN and infinities as null.
    case number
    /// Number inside another value: like `number`, but NaN and the infinities are strings.
    case nestedNumber
    case boolean
    case json
    case timestamp
    case timestampWithZone
    case bytes
    case text
    /// Text of the extension hstore, as an object of strings.
    case hstore

    func append(_ text: RawSpan, to writer: inout ByteWriter) {
        switch self {
        case .text: JSONText.appendString(text, to: &writer)
        case .integer, .number: NumberText.append(text, to: &writer)
        case .nestedNumber: NumberText.append(text, nested: true, to: &writer)
        case .boolean: appendBoolean(text, to: &writer)
        case .json: JSONText.appendOnOneLine(text, to: &writer)
        case .timestamp: TimestampText.append(text, withZone: false, to: &writer)
        case .timestampWithZone: TimestampText.append(text, withZone: true, to: &writer)
        case .bytes: appendBytes(text, to: &writer)
        case .hstore: HstoreText.append(text, to: &writer)
        }
    }

    /// Conversion of the same type inside an array or a row. For those, Supabase Realtime (the reference) uses
    /// `to_jsonb`, which writes some values differently.
    public var nested: ScalarRendering {
        switch self {
        case .number: .nestedNumber
        // A value by itself loses its prefix `\x`; an element of an array or row keeps it.
        case .bytes: .text
        default: self
        }
    }

    private func appendBoolean(_ text: RawSpan, to writer: inout ByteWriter) {
        switch text.byteCount == 1 ? text.byte(0) : 0 {
        case UInt8(ascii: "t"): writer.append("true")
        case UInt8(ascii: "f"): writer.append("false")
        default: JSONText.appendString(text, to: &writer)
        }
    }

    private func appendBytes(_ text: RawSpan, to writer: inout ByteWriter) {
        let hasPrefix = text.byteCount >= 2 && text.byte(0) == UInt8(ascii: "\\") && text.byte(1) == UInt8(ascii: "x")
        JSONText.appendString(hasPrefix ? text.extracting(2..<text.byteCount) : text, to: &writer)
    }
}

enum NumberText {
    static func append(_ text: RawSpan, nested: Bool = false, to writer: inout ByteWriter) {
        guard let mark = endOfMantissa(text) else { return appendOther(text, nested, to: &writer) }
        if mark == text.byteCount { return writer.append(text) }
        guard let exponent = exponent(text, from: mark) else { return appendOther(text, nested, to: &writer) }
        appendWrittenOut(text, exponentAt: mark, exponent, to: &writer)
    }

    @inline(__always)
    static func isDigit(_ byte: UInt8) -> Bool { byte &- 48 < 10 }

    /// Appends a text that is not a JSON number: NaN or an infinity, or a text that PostgreSQL never writes.
    private static func appendOther(_ text: RawSpan, _ nested: Bool, to writer: inout ByteWriter) {
        let isBeyondJSON = text.equals("NaN") || text.equals("Infinity") || text.equals("-Infinity")
        if isBeyondJSON, !nested {
            writer.append("null")
        } else {
            JSONText.appendString(text, to: &writer)
        }
    }

    /// Returns the offset after the number without its exponent; nil if the text has another form. RFC 8259 §6: an
    /// optional minus, an integer without leading zeros, an optional fraction.
    private static func endOfMantissa(_ text: RawSpan) -> Int? {
        let length = text.byteCount
        let start = length > 0 && text.byte(0) == UInt8(ascii: "-") ? 1 : 0
        let whole = endOfDigits(text, from: start)
        guard whole > start, whole == start + 1 || text.byte(start) != UInt8(ascii: "0") else { return nil }
        if whole == length { return whole }
        guard text.byte(whole) == UInt8(ascii: ".") else { return isExponent(text, at: whole) ? whole : nil }
        let fraction = endOfDigits(text, from: whole + 1)
        guard fraction > whole + 1, fraction == length || isExponent(text, at: fraction) else { return nil }
        return fraction
    }

    private static func isExponent(_ text: RawSpan, at offset: Int) -> Bool {
        text.byte(offset) == UInt8(ascii: "e")
    }

    private static func endOfDigits(_ text: RawSpan, from start: Int) -> Int {
        var at = start
        while at < text.byteCount, isDigit(text.byte(at)) { at &+= 1 }
        return at
    }

    /// Returns the exponent after the `e`; nil if it is not a number or is too large for a double.
    private static func exponent(_ text: RawSpan, from mark: Int) -> Int? {
        var start = mark + 1
        guard start < text.byteCount else { return nil }
        let isNegative = text.byte(start) == UInt8(ascii: "-")
        if isNegative || text.byte(start) == UInt8(ascii: "+") { start += 1 }
        let end = endOfDigits(text, from: start)
        guard end == text.byteCount, (1...3).contains(end - start) else { return nil }
        var value = 0
        for offset in start..<end { value = value * 10 + Int(text.byte(offset) - 48) }
        guard value <= 400 else { return nil }
        return isNegative ? -value : value
    }

    /// Appends a number without its exponent: `1.5e+20` becomes `150000000000000000000`, `1e-07` becomes `0.0000001`.
    private static func appendWrittenOut(
        _ text: RawSpan, exponentAt mark: Int, _ exponent: Int, to writer: inout ByteWriter
    ) {
        var digits: [UInt8] = []
        var point: Int?
        for offset in 0..<mark {
            let byte = text.byte(offset)
            if isDigit(byte) { digits.append(byte) }
            if byte == UInt8(ascii: ".") { point = digits.count }
        }
        let zeros = digits.prefix { $0 == UInt8(ascii: "0") }.count
        if text.byte(0) == UInt8(ascii: "-") { writer.append(UInt8(ascii: "-")) }
        if zeros == digits.count { return writer.append("0") }
        append(Array(digits[zeros...]), pointAt: (point ?? digits.count) + exponent - zeros, to: &writer)
    }

    private static func append(_ digits: [UInt8], pointAt place: Int, to writer: inout ByteWriter) {
        if place <= 0 {
            writer.append("0.")
            writer.append([UInt8](repeating: 48, count: -place))
            writer.append(digits)
        } else {
            let padded = digits + [UInt8](repeating: 48, count: max(0, place - digits.count))
            writer.append(Array(padded[..<place]))
            if place < padded.count {
                writer.append(UInt8(ascii: "."))
                writer.append(Array(padded[place...]))
            }
        }
    }
}

enum TimestampText {
    /// Appends a timestamp in ISO form: `2026-03-01 10:20:30.5+00` becomes `2026-03-01T10:20:30.5+00:00`. `infinity`
    /// stays unchanged.
    static func append(_ text: RawSpan, withZone: Bool, to writer: inout ByteWriter) {
        // A year has four digits unless it is far in the past or future.
        var space = text.byteCount > 10 && text.byte(10) == UInt8(ascii: " ") ? 10 : 0
        while space < text.byteCount, text.byte(space) != UInt8(ascii: " ") { space += 1 }
        guard space + 1 < text.byteCount, NumberText.isDigit(text.byte(space + 1)) else {
            return JSONText.appendString(text, to: &writer)
        }
        var end = text.byteCount
        let isBeforeChrist =
            text.byte(end - 1) == UInt8(ascii: "C") && end >= 3 && text.extracting(end - 3..<end).equals(" BC")
        if isBeforeChrist { end -= 3 }
        writer.append(UInt8(ascii: "\""))
        JSONText.appendEscaped(text.extracting(0..<space), to: &writer)
        writer.append(UInt8(ascii: "T"))
        JSONText.appendEscaped(text.extracting(space + 1..<end), to: &writer)
        if withZone, end >= 3, text.byte(end - 3) == UInt8(ascii: "+") || text.byte(end - 3) == UInt8(ascii: "-") {
            writer.append(":00")
        }
        if isBeforeChrist { writer.append(" BC") }
        writer.append(UInt8(ascii: "\""))
    }
}

/// Array text of PostgreSQL, `{1,NULL,"a \"b\""}`, also nested and with leading bounds (`[0:1]={1,2}`).
enum ArrayText {
    static let maximumDimensions = 6

    @inline(never)
    static func append(_ text: RawSpan, of element: ScalarRendering, to writer: inout ByteWriter) {
        append(text, to: &writer) { value, writer in element.append(value, to: &writer) }
    }

    /// Appends an array. For each element that is not NULL, calls `appendValue` with the unquoted text, to write its
    /// JSON.
    static func append(
        _ text: RawSpan, to writer: inout ByteWriter, _ appendValue: (RawSpan, inout ByteWriter) -> Void
    ) {
        let before = writer.count
        var start = 0
        while start < text.byteCount, text.byte(start) != UInt8(ascii: "{") { start += 1 }
        if let end = appendArray(text, from: start, depth: 1, to: &writer, appendValue), end == text.byteCount {
            return
        }
        // Not a valid array: append the text as a JSON string.
        writer.truncate(to: before)
        JSONText.appendString(text, to: &writer)
    }

    /// Appends the array that begins at `start`. Returns the offset after the array; nil if it is malformed.
    private static func appendArray(
        _ text: RawSpan, from start: Int, depth: Int, to writer: inout ByteWriter,
        _ appendValue: (RawSpan, inout ByteWriter) -> Void
    ) -> Int? {
        guard depth <= maximumDimensions, start < text.byteCount, text.byte(start) == UInt8(ascii: "{") else {
            return nil
        }
        writer.append(UInt8(ascii: "["))
        var at = start + 1
        if at < text.byteCount, text.byte(at) == UInt8(ascii: "}") {
            writer.append(UInt8(ascii: "]"))
            return at + 1
        }
        while at < text.byteCount {
            guard let end = appendElement(text, from: at, depth: depth, to: &writer, appendValue), end < text.byteCount
            else { return nil }
            at = end + 1
            switch text.byte(end) {
            case UInt8(ascii: ","): writer.append(UInt8(ascii: ","))
            case UInt8(ascii: "}"):
                writer.append(UInt8(ascii: "]"))
                return at
            default: return nil
            }
        }
        return nil
    }

    private static func appendElement(
        _ text: RawSpan, from start: Int, depth: Int, to writer: inout ByteWriter,
        _ appendValue: (RawSpan, inout ByteWriter) -> Void
    ) -> Int? {
        switch text.byte(start) {
        case UInt8(ascii: "{"): return appendArray(text, from: start, depth: depth + 1, to: &writer, appendValue)
        case UInt8(ascii: "\""): return appendQuoted(text, from: start, to: &writer, appendValue)
        default:
            var end = start
            while end < text.byteCount, text.byte(end) != UInt8(ascii: ","), text.byte(end) != UInt8(ascii: "}") {
                end += 1
            }
            let value = text.extracting(start..<end)
            if value.equals("NULL") { writer.append("null") } else { appendValue(value, &writer) }
            return end
        }
    }

    private static func appendQuoted(
        _ text: RawSpan, from start: Int, to writer: inout ByteWriter,
        _ appendValue: (RawSpan, inout ByteWriter) -> Void
    ) -> Int? {
        var unquoted = ByteWriter(capacity: 64)
        var at = start + 1
        while at < text.byteCount {
            var byte = text.byte(at)
            if byte == UInt8(ascii: "\"") {
                appendValue(unquoted.bytes, &writer)
                return at + 1
            }
            if byte == UInt8(ascii: "\\") {
                at += 1
                guard at < text.byteCount else { return nil }
                byte = text.byte(at)
            }
            unquoted.append(byte)
            at += 1
        }
        return nil
    }
}
