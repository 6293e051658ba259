/// Writing JSON straight into bytes.
public enum JSONText {
    /// A string with its quotes. The bytes are taken as UTF-8, which PostgreSQL vouches for.
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

    /// Eight bytes at a time while none of them needs an escape: quote, backslash or a control character.
    @inlinable
    public static func appendEscaped(_ text: RawSpan, to writer: inout ByteWriter) {
        let length = text.byteCount
        writer.reserve(length &+ 8)
        var start = 0
        var at = 0
        while at &+ 8 <= length {
            // SAFETY: `at + 8` lies within the span; every bit pattern is an integer.
            let word = unsafe text.unsafeLoadUnaligned(fromUncheckedByteOffset: at, as: UInt64.self)
            if needsEscape(word) {
                let clean = plainPrefix(text, from: at, to: at &+ 8)
                writer.append(text.extracting(start..<clean))
                appendEscape(text.byte(clean), to: &writer)
                start = clean &+ 1
                at = start
            } else {
                at &+= 8
            }
        }
        while at < length {
            let clean = plainPrefix(text, from: at, to: length)
            if clean == length { break }
            writer.append(text.extracting(start..<clean))
            appendEscape(text.byte(clean), to: &writer)
            start = clean &+ 1
            at = start
        }
        writer.append(text.extracting(start..<length))
    }

    /// Whether any of eight bytes is below 0x20, a quote or a backslash (bit tricks on all lanes at once; a false
    /// alarm is possible above such a byte, never a miss).
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

    @inlinable
    static func plainPrefix(_ text: RawSpan, from start: Int, to end: Int) -> Int {
        var at = start
        while at < end {
            let byte = text.byte(at)
            if byte < 0x20 || byte == 0x22 || byte == 0x5c { return at }
            at &+= 1
        }
        return at
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

    /// JSON that PostgreSQL has checked, without the line breaks and tabs that `json` keeps between tokens.
    public static func appendOnOneLine(_ json: RawSpan, to writer: inout ByteWriter) {
        guard json.byteCount > 0 else { return writer.append("null") }
        var start = 0
        for at in 0..<json.byteCount where json.byte(at) < 0x20 {
            // Inside a string a control character cannot stand raw, so this is space between tokens.
            writer.append(json.extracting(start..<at))
            start = at + 1
        }
        writer.append(json.extracting(start..<json.byteCount))
    }
}
