import Bytes

/// Matcher of SQL's LIKE for UTF-8: `%` matches any characters, `_` matches one, a backslash escapes the next
/// character.
enum LikePattern {
    /// True if the pattern ends with an escape character. PostgreSQL raises an error when it reaches such an end.
    static func endsWithEscape(_ pattern: [UInt8]) -> Bool {
        var isEscaped = false
        for byte in pattern { isEscaped = !isEscaped && byte == UInt8(ascii: "\\") }
        return isEscaped
    }

    /// Returns the bytes with which every matching text begins. `isAll` is true if every text that begins with them
    /// matches.
    static func beginning(_ pattern: [UInt8]) -> (start: [UInt8], isAll: Bool) {
        var start: [UInt8] = []
        var at = 0
        while at < pattern.count {
            switch pattern[at] {
            case UInt8(ascii: "%"): return (start, pattern[at...].allSatisfy { $0 == UInt8(ascii: "%") })
            case UInt8(ascii: "_"): return (start, false)
            case UInt8(ascii: "\\") where at + 1 < pattern.count:
                start.append(pattern[at + 1])
                at += 2
            default:
                start.append(pattern[at])
                at += 1
            }
        }
        return (start, false)
    }

    static func isASCII(_ text: RawSpan) -> Bool {
        for index in 0..<text.byteCount where text.byte(index) >= 0x80 { return false }
        return true
    }

    /// True if the whole text matches the pattern. If `foldingCase` is true, ASCII letters match regardless of case.
    ///
    /// After a mismatch, the last `%` is extended by one character. Earlier ones need not be tried again.
    static func matches(_ text: RawSpan, _ pattern: RawSpan, foldingCase: Bool) -> Bool {
        assert(!endsWithEscape(pattern.copied()), "PostgreSQL fails on it, and would not say no")
        var (at, next) = (0, 0)
        var retry: (text: Int, pattern: Int)?
        while at < text.byteCount {
            if next < pattern.byteCount, pattern.byte(next) == UInt8(ascii: "%") {
                next += 1
                retry = (at, next)
            } else if let step = step(text, at, pattern, next, foldingCase) {
                at = step.text
                next = step.pattern
            } else if let last = retry {
                assert(last.text <= at && last.pattern <= next, "what is tried again lies behind")
                at = characterEnd(text, last.text)
                next = last.pattern
                retry = (at, next)
            } else {
                return false
            }
            assert(at <= text.byteCount && next <= pattern.byteCount, "beyond the text")
        }
        while next < pattern.byteCount, pattern.byte(next) == UInt8(ascii: "%") { next += 1 }
        return next == pattern.byteCount
    }

    /// Returns the offsets after the next character of the pattern and the text that it matches; nil if it does not
    /// match.
    private static func step(
        _ text: RawSpan, _ at: Int, _ pattern: RawSpan, _ next: Int, _ foldingCase: Bool
    ) -> (text: Int, pattern: Int)? {
        guard next < pattern.byteCount else { return nil }
        var place = next
        if pattern.byte(place) == UInt8(ascii: "_") { return (characterEnd(text, at), place + 1) }
        if pattern.byte(place) == UInt8(ascii: "\\") {
            place += 1
            guard place < pattern.byteCount else { return nil }
        }
        let (a, b) = (text.byte(at), pattern.byte(place))
        guard a == b || foldingCase && folded(a) == folded(b) else { return nil }
        return (at + 1, place + 1)
    }

    private static func folded(_ byte: UInt8) -> UInt8 { (0x41...0x5a).contains(byte) ? byte + 32 : byte }

    private static func characterEnd(_ text: RawSpan, _ start: Int) -> Int {
        var at = start + 1
        while at < text.byteCount, text.byte(at) & 0xc0 == 0x80 { at += 1 }
        assert(at > start, "a character of nothing")
        return at
    }
}
