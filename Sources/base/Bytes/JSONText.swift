/// Functions that write JSON as bytes.
public enum JSONText {
    /// Appends a JSON string with its quotes. The bytes must be valid UTF-8, which PostgreSQL guarantees.
    @inlinable
    public static func appendString(_ text: RawSpan, to writer: inout ByteWriter) {
        writer.append(UInt8(ascii: "\""))
        appendEscaped(text, to: &writer)
        writer.append(UInt8(ascii: "\""))
    }

    public static func appendString(_ text: String, to writer: inout ByteWriter) {
        var text = text
        text.withUTF8 { utf8 in
            // SAFETY: the buffer is valid inside the closure.
            unsafe appendString(UnsafeRawBufferPointer(utf8).bytes, to: &writer)
        }
    }

    /// Appends a text without quotes, and escapes the quotes, backslashes and control characters in it. Eight bytes
    /// that need no escape are copied together.
    @inlinable
    public static func appendEscaped(_ text: RawSpan, to writer: inout ByteWriter) {
        let length = text.byteCount
        var at = writer.appendWords(of: text) { needsEscape($0) }
        while at &+ 8 <= length {
            appendEachEscaped(text, from: at, to: at &+ 8, &writer)
            at &+= 8
            at &+= writer.appendWords(of: text.extracting(at..<length)) { needsEscape($0) }
        }
        if at < length { appendTail(text, from: at, to: &writer) }
    }

    /// Appends the last one to seven bytes. They are checked as a word of eight bytes, padded with spaces, which need
    /// no escape.
    @inlinable
    static func appendTail(_ text: RawSpan, from start: Int, to writer: inout ByteWriter) {
        let word = tail(text, from: start)
        if needsEscape(word) {
            appendEachEscaped(text, from: start, to: text.byteCount, &writer)
        } else {
            writer.append(low: word, count: text.byteCount &- start)
        }
    }

    @inlinable
    static func tail(_ text: RawSpan, from start: Int) -> UInt64 {
        let count = text.byteCount &- start
        let spaces: UInt64 = 0x2020_2020_2020_2020
        if start >= 8 {
            // The last eight bytes of the text, without the bytes before `start`.
            // SAFETY: it lies within the span because `start` is 8 or more; every bit pattern is an integer.
            let last = unsafe text.unsafeLoadUnaligned(
                fromUncheckedByteOffset: text.byteCount &- 8, as: UInt64.self
            ).littleEndian
            return last >> UInt64(64 &- count &* 8) | spaces << UInt64(count &* 8)
        }
        var word = spaces
        for at in 0..<count {
            let shift = UInt64(at &* 8)
            word = word & ~(0xff << shift) | UInt64(text.byte(start &+ at)) << shift
        }
        return word
    }

    @usableFromInline @inline(never)
    static func appendEachEscaped(_ text: RawSpan, from start: Int, to end: Int, _ writer: inout ByteWriter) {
        for at in start..<end {
            let byte = text.byte(at)
            if byte < 0x20 || byte == 0x22 || byte == 0x5c {
                appendEscape(byte, to: &writer)
            } else {
                writer.append(byte)
            }
        }
    }

    /// True if any of the eight bytes is below 0x20, a quote or a backslash. Bit operations check all eight together. A
    /// borrow may cause a false alarm for the byte above such a byte, but never hides one.
    @inlinable
    static func needsEscape(_ word: UInt64) -> Bool {
        let ones: UInt64 = 0x0101_0101_0101_0101
        let highs: UInt64 = 0x8080_8080_8080_8080
        let quote = word ^ (ones &* 0x22)
        let backslash = word ^ (ones &* 0x5c)
        let control = (word &- (ones &* 0x20)) & ~word
        let isQuote = (quote &- ones) & ~quote
        let isBackslash = (backslash &- ones) & ~backslash
        return (control | isQuote | isBackslash) & highs != 0
    }

    @usableFromInline
    static func appendEscape(_ byte: UInt8, to writer: inout ByteWriter) {
        switch byte {
        case 0x22: writer.append("\\\"")
        case 0x5c: writer.append("\\\\")
        case 0x0a: writer.append("\\n")
        case 0x0d: writer.append("\\r")
        case 0x09: writer.append("\\t")
        case 0x08: writer.append("\\b")
        case 0x0c: writer.append("\\f")
        default:
            writer.append("\\u00")
            writer.append(Hex.digit(byte >> 4))
            writer.append(Hex.digit(byte & 15))
        }
    }

    /// Appends JSON that PostgreSQL has validated, without the line breaks and tabs that `json` keeps between tokens.
    public static func appendOnOneLine(_ json: RawSpan, to writer: inout ByteWriter) {
        let length = json.byteCount
        guard length > 0 else { return writer.append("null") }
        writer.reserve(length &+ 8)
        var at = 0
        while at &+ 8 <= length {
            // SAFETY: `at + 8` lies within the span; every bit pattern is an integer.
            let word = unsafe json.unsafeLoadUnaligned(fromUncheckedByteOffset: at, as: UInt64.self).littleEndian
            if hasControl(word) {
                appendWithoutControls(json, from: at, to: at &+ 8, &writer)
            } else {
                writer.append(little: word)
            }
            at &+= 8
        }
        appendWithoutControls(json, from: at, to: length, &writer)
    }

    /// Copies bytes and leaves out control characters. In JSON, raw control characters are allowed only between tokens,
    /// as white space.
    private static func appendWithoutControls(
        _ json: RawSpan, from start: Int, to end: Int, _ writer: inout ByteWriter
    ) {
        for at in start..<end where json.byte(at) >= 0x20 { writer.append(json.byte(at)) }
    }

    /// True if any of the eight bytes is below 0x20. A borrow may cause a false alarm for the byte above such a byte,
    /// but never hides one.
    private static func hasControl(_ word: UInt64) -> Bool {
        (word &- 0x2020_2020_2020_2020) & ~word & 0x8080_8080_8080_8080 != 0
    }
}
